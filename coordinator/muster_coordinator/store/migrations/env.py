"""How Alembic meets the database: always on a connection that the caller has opened (see `store.migrate`)."""

from alembic import context

from muster_coordinator.store.ledger_tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transactional_ddl=True,  # a step that fails half way leaves nothing, on SQLite too
    compare_type=True,
)

with context.begin_transaction():
    context.run_migrations()
