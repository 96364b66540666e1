"""First tables and the guards against double booking.

Revision: 0001, after None.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


_OVERLAPS = """
    EXISTS (
        SELECT 1 FROM booking AS other
        WHERE other.node_id = NEW.node_id AND other.word = NEW.word AND other.live
          AND other.end_ms > NEW.start_ms AND other.start_ms < NEW.end_ms AND other.mask & NEW.mask
          AND NOT (other.allocation_id = NEW.allocation_id AND other.word = NEW.word)
    )
"""


def _guard_sqlite() -> None:
    for name, moment in (("insert", "INSERT"), ("update", "UPDATE")):
        op.execute(
            f"CREATE TRIGGER muster_booking_overlap_{name} BEFORE {moment} ON booking "
            f"WHEN NEW.live AND {_OVERLAPS} "
            "BEGIN SELECT RAISE(ABORT, 'muster_booking_overlap'); END"
        )


def _guard_postgresql() -> None:
    op.execute("CREATE EXTENSION IF NOT EXISTS btree_gist")
    # A mask as a set of ranges of bits, which an exclusion constraint can compare. One to eight ranges are usual.
    op.execute("""
        CREATE FUNCTION muster_mask_atoms(mask bigint) RETURNS int4multirange
        LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
        DECLARE
            atoms int4multirange := '{}';
        BEGIN
            IF mask = 255 THEN -- a node of eight GPUs, whole: most bookings
                RETURN '{[0,8)}';
            END IF;
            FOR bit IN 0..62 LOOP
                IF (mask >> bit) & 1 = 1 THEN
                    atoms := atoms + int4multirange(int4range(bit, bit + 1));
                END IF;
            END LOOP;
            RETURN atoms;
        END $$
    """)
    op.execute("""
        ALTER TABLE booking ADD CONSTRAINT muster_booking_overlap EXCLUDE USING gist (
            node_id WITH =,
            word WITH =,
            int8range(start_ms, end_ms) WITH &&,
            muster_mask_atoms(mask) WITH &&
        ) WHERE (live)
    """)


def upgrade() -> None:
    op.create_table(
        "cluster",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("access_version", sa.BigInteger(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cluster")),
    )
    op.create_table(
        "event",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=True),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("pool_id", sa.String(), nullable=True),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("data", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_event")),
        sa.UniqueConstraint("id", name=op.f("uq_event_id")),
        sa.UniqueConstraint("seq", name=op.f("uq_event_seq")),
        sa.UniqueConstraint("subject", "version", name=op.f("uq_event_subject_version")),
    )
    op.create_table(
        "pool",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("policy", sa.String(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("freed_version", sa.BigInteger(), nullable=False),
        sa.Column("storm", sa.String(), nullable=False),
        sa.Column("moves", sa.String(), nullable=False),
        sa.Column("heard_again_ms", sa.BigInteger(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pool")),
        sa.UniqueConstraint("name", name=op.f("uq_pool_name")),
    )
    op.create_table(
        "lease",
        sa.Column("pool_id", sa.String(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=False),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pool.id"], name=op.f("fk_lease_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", name=op.f("pk_lease")),
    )
    op.create_table(
        "maintenance",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("pool_id", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("start_ms", sa.BigInteger(), nullable=False),
        sa.Column("end_ms", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("start_ms < end_ms", name=op.f("ck_maintenance_window")),
        sa.ForeignKeyConstraint(["pool_id"], ["pool.id"], name=op.f("fk_maintenance_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_maintenance")),
    )
    op.create_table(
        "node",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("pool_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("machine_id", sa.String(), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("former_token_hash", sa.String(), nullable=True),
        sa.Column("former_until_ms", sa.BigInteger(), nullable=True),
        sa.Column("credential_ms", sa.BigInteger(), nullable=False),
        sa.Column("credential_revoked_ms", sa.BigInteger(), nullable=True),
        sa.Column("intent", sa.String(), nullable=False),
        sa.Column("leased", sa.Boolean(), nullable=False),
        sa.Column("silent", sa.Boolean(), nullable=False),
        sa.Column("operator_labels", sa.String(), nullable=False),
        sa.Column("inventory", sa.String(), nullable=True),
        sa.Column("inventory_hash", sa.String(), nullable=True),
        sa.Column("agent_version", sa.String(), nullable=True),
        sa.Column("boot_id", sa.String(), nullable=True),
        sa.Column("past_boots", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("applied_rev", sa.BigInteger(), nullable=False),
        sa.Column("rev", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("changed_version", sa.BigInteger(), nullable=False),
        sa.Column("fault_ms", sa.BigInteger(), nullable=False),
        sa.Column("flips", sa.String(), nullable=False),
        sa.Column("sound_since_ms", sa.BigInteger(), nullable=False),
        sa.Column("home_domain", sa.String(), nullable=True),
        sa.Column("drained_ms", sa.BigInteger(), nullable=True),
        sa.Column("slots", sa.String(), nullable=False),
        sa.Column("last_report_ms", sa.BigInteger(), nullable=True),
        sa.Column("removed_ms", sa.BigInteger(), nullable=True),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pool.id"], name=op.f("fk_node_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_node")),
        sa.UniqueConstraint("machine_id", name=op.f("uq_node_machine_id")),
        sa.UniqueConstraint("name", name=op.f("uq_node_name")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_node_token_hash")),
    )
    op.create_index("ix_node_pool_id_changed_version", "node", ["pool_id", "changed_version"], unique=False)
    op.create_index("ix_node_pool_id_last_report_ms", "node", ["pool_id", "last_report_ms"], unique=False)
    op.create_table(
        "series",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("pool_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("end_reason", sa.String(), nullable=True),
        sa.Column("rule", sa.String(), nullable=False),
        sa.Column("zone", sa.String(), nullable=False),
        sa.Column("first", sa.String(), nullable=False),
        sa.Column("request", sa.String(), nullable=False),
        sa.Column("duration_ms", sa.BigInteger(), nullable=False),
        sa.Column("skipped", sa.String(), nullable=False),
        sa.Column("made_until_ms", sa.BigInteger(), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.Column("idempotency_key", sa.String(), nullable=True),
        sa.Column("body_hash", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pool.id"], name=op.f("fk_series_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_series")),
        sa.UniqueConstraint("tenant_id", "idempotency_key", name=op.f("uq_series_tenant_id_idempotency_key")),
    )
    op.create_index(
        "ix_series_pool_id_state_made_until_ms", "series", ["pool_id", "state", "made_until_ms"], unique=False
    )
    op.create_table(
        "wait",
        sa.Column("pool_id", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("condition", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pool.id"], name=op.f("fk_wait_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "key", name=op.f("pk_wait")),
    )
    op.create_table(
        "atom",
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("gpu", sa.String(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("profile", sa.String(), nullable=False),
        sa.Column("milli", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("memory_mib", sa.BigInteger(), nullable=False),
        sa.Column("island", sa.BigInteger(), nullable=False),
        sa.Column("numa", sa.BigInteger(), nullable=True),
        sa.Column("seen", sa.Boolean(), nullable=False),
        sa.Column("listed", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["node.id"], name=op.f("fk_atom_node_id")),
        sa.PrimaryKeyConstraint("node_id", "number", name=op.f("pk_atom")),
    )
    op.create_table(
        "booking",
        sa.Column("allocation_id", sa.String(), nullable=False),
        sa.Column("word", sa.Integer(), nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("reservation_id", sa.String(), nullable=False),
        sa.Column("mask", sa.BigInteger(), nullable=False),
        sa.Column("start_ms", sa.BigInteger(), nullable=False),
        sa.Column("end_ms", sa.BigInteger(), nullable=False),
        sa.Column("live", sa.Boolean(), nullable=False),
        sa.CheckConstraint("mask > 0", name=op.f("ck_booking_mask")),
        sa.CheckConstraint("start_ms < end_ms", name=op.f("ck_booking_window")),
        sa.ForeignKeyConstraint(["node_id"], ["node.id"], name=op.f("fk_booking_node_id")),
        sa.PrimaryKeyConstraint("allocation_id", "word", name=op.f("pk_booking")),
    )
    op.create_index("ix_booking_node_id_end_ms", "booking", ["node_id", "end_ms"], unique=False)
    op.create_table(
        "hold",
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("cause", sa.String(), nullable=False),
        sa.Column("code", sa.BigInteger(), nullable=False),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
        sa.Column("clears_by", sa.String(), nullable=False),
        sa.Column("message", sa.String(), nullable=True),
        sa.Column("clear_asked_ms", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["node_id"], ["node.id"], name=op.f("fk_hold_node_id")),
        sa.PrimaryKeyConstraint("node_id", "device", "cause", "code", name=op.f("pk_hold")),
    )
    op.create_table(
        "maintenance_node",
        sa.Column("maintenance_id", sa.String(), nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("booked", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["maintenance_id"], ["maintenance.id"], name=op.f("fk_maintenance_node_maintenance_id")
        ),
        sa.ForeignKeyConstraint(["node_id"], ["node.id"], name=op.f("fk_maintenance_node_node_id")),
        sa.PrimaryKeyConstraint("maintenance_id", "node_id", name=op.f("pk_maintenance_node")),
    )
    op.create_index("ix_maintenance_node_node_id", "maintenance_node", ["node_id"], unique=False)
    op.create_table(
        "reservation",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("pool_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("end_reason", sa.String(), nullable=True),
        sa.Column("condition", sa.String(), nullable=True),
        sa.Column("wait_key", sa.String(), nullable=True),
        sa.Column("risks", sa.String(), nullable=False),
        sa.Column("request", sa.String(), nullable=False),
        sa.Column("shape", sa.String(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("grouping", sa.String(), nullable=False),
        sa.Column("agreed", sa.String(), nullable=False),
        sa.Column("start_ms", sa.BigInteger(), nullable=False),
        sa.Column("duration_ms", sa.BigInteger(), nullable=False),
        sa.Column("fixed_end_ms", sa.BigInteger(), nullable=True),
        sa.Column("latest_start_ms", sa.BigInteger(), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("check_due_ms", sa.BigInteger(), nullable=True),
        sa.Column("repairing", sa.Boolean(), nullable=False),
        sa.Column("binding_since_ms", sa.BigInteger(), nullable=True),
        sa.Column("activated_ms", sa.BigInteger(), nullable=True),
        sa.Column("protected_until_ms", sa.BigInteger(), nullable=True),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.Column("on_member_loss", sa.String(), nullable=False),
        sa.Column("binding", sa.String(), nullable=False),
        sa.Column("spot", sa.Boolean(), nullable=False),
        sa.Column("budget", sa.String(), nullable=True),
        sa.Column("min_runtime_ms", sa.BigInteger(), nullable=True),
        sa.Column("resumable", sa.Boolean(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("leave_by_ms", sa.BigInteger(), nullable=True),
        sa.Column("leave_for", sa.String(), nullable=True),
        sa.Column("preemptions", sa.Integer(), nullable=False),
        sa.Column("series_id", sa.String(), nullable=True),
        sa.Column("occurrence_ms", sa.BigInteger(), nullable=True),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("idempotency_key", sa.String(), nullable=True),
        sa.Column("body_hash", sa.String(), nullable=False),
        sa.CheckConstraint("duration_ms >= 1", name=op.f("ck_reservation_duration")),
        sa.CheckConstraint("size >= 1", name=op.f("ck_reservation_size")),
        sa.ForeignKeyConstraint(["pool_id"], ["pool.id"], name=op.f("fk_reservation_pool_id")),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name=op.f("fk_reservation_series_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reservation")),
        sa.UniqueConstraint("series_id", "occurrence_ms", name=op.f("uq_reservation_series_id_occurrence_ms")),
        sa.UniqueConstraint("tenant_id", "idempotency_key", name=op.f("uq_reservation_tenant_id_idempotency_key")),
    )
    op.create_index("ix_reservation_pool_id_check_due_ms", "reservation", ["pool_id", "check_due_ms"], unique=False)
    op.create_index(
        "ix_reservation_pool_id_wait_key_created_ms", "reservation", ["pool_id", "wait_key", "created_ms"], unique=False
    )
    op.create_index("ix_reservation_state_start_ms", "reservation", ["state", "start_ms"], unique=False)
    op.create_table(
        "allocation",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("reservation_id", sa.String(), nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("live", sa.Boolean(), nullable=False),
        sa.Column("agreed", sa.String(), nullable=False),
        sa.Column("bind_state", sa.String(), nullable=False),
        sa.Column("bind_reason", sa.String(), nullable=True),
        sa.Column("ordered_ms", sa.BigInteger(), nullable=True),
        sa.Column("bound_ms", sa.BigInteger(), nullable=True),
        sa.Column("bound_boot", sa.String(), nullable=True),
        sa.Column("grant_until_ms", sa.BigInteger(), nullable=True),
        sa.Column("guard_armed", sa.Boolean(), nullable=False),
        sa.Column("dropped_ms", sa.BigInteger(), nullable=True),
        sa.Column("imex_channel", sa.Integer(), nullable=True),
        sa.Column("overdue", sa.Boolean(), nullable=False),
        sa.Column("dropped_rev", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["node_id"], ["node.id"], name=op.f("fk_allocation_node_id")),
        sa.ForeignKeyConstraint(["reservation_id"], ["reservation.id"], name=op.f("fk_allocation_reservation_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_allocation")),
    )
    op.create_index("ix_allocation_node_id_bind_state", "allocation", ["node_id", "bind_state"], unique=False)
    op.create_index("ix_allocation_reservation_id", "allocation", ["reservation_id"], unique=False)
    # Written by hand for each engine: autogenerate knows neither triggers nor exclusion constraints.
    if op.get_bind().dialect.name == "sqlite":
        _guard_sqlite()
    else:
        _guard_postgresql()


def downgrade() -> None:
    op.drop_index("ix_allocation_reservation_id", table_name="allocation")
    op.drop_index("ix_allocation_node_id_bind_state", table_name="allocation")
    op.drop_table("allocation")
    op.drop_index("ix_reservation_state_start_ms", table_name="reservation")
    op.drop_index("ix_reservation_pool_id_wait_key_created_ms", table_name="reservation")
    op.drop_index("ix_reservation_pool_id_check_due_ms", table_name="reservation")
    op.drop_table("reservation")
    op.drop_index("ix_maintenance_node_node_id", table_name="maintenance_node")
    op.drop_table("maintenance_node")
    op.drop_table("hold")
    op.drop_index("ix_booking_node_id_end_ms", table_name="booking")
    op.drop_table("booking")
    op.drop_table("atom")
    op.drop_table("wait")
    op.drop_index("ix_series_pool_id_state_made_until_ms", table_name="series")
    op.drop_table("series")
    op.drop_index("ix_node_pool_id_last_report_ms", table_name="node")
    op.drop_index("ix_node_pool_id_changed_version", table_name="node")
    op.drop_table("node")
    op.drop_table("maintenance")
    op.drop_table("lease")
    op.drop_table("pool")
    op.drop_table("event")
    op.drop_table("cluster")
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP FUNCTION muster_mask_atoms(bigint)")
