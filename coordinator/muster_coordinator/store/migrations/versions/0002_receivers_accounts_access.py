"""Receivers of events, quota, usage, access and audit.

Revision: 0002, after 0001.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "webhook",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("secret", sa.String(), nullable=False),
        sa.Column("former_secret", sa.String(), nullable=True),
        sa.Column("types", sa.String(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("failing_since_ms", sa.BigInteger(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook")),
        sa.UniqueConstraint("name", name=op.f("uq_webhook_name")),
    )
    op.create_table(
        "delivery",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("webhook_id", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_ms", sa.BigInteger(), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("done_ms", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["webhook_id"], ["webhook.id"], name=op.f("fk_delivery_webhook_id")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_delivery")),
        sa.UniqueConstraint("webhook_id", "seq", name=op.f("uq_delivery_webhook_id_seq")),
    )
    op.create_index("ix_delivery_state_next_ms", "delivery", ["state", "next_ms"], unique=False)
    op.create_table(
        "quota",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("pool_id", sa.String(), nullable=False),
        sa.Column("limit_milli", sa.BigInteger(), nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pool.id"], name=op.f("fk_quota_pool_id")),
        sa.PrimaryKeyConstraint("tenant_id", "pool_id", name=op.f("pk_quota")),
    )
    op.create_table(
        "charge",
        sa.Column("reservation_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("pool_id", sa.String(), nullable=False),
        sa.Column("milli", sa.BigInteger(), nullable=False),
        sa.Column("charged_ms", sa.BigInteger(), nullable=False),
        sa.Column("returned_ms", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("milli >= 0", name=op.f("ck_charge_milli")),
        sa.ForeignKeyConstraint(["pool_id"], ["pool.id"], name=op.f("fk_charge_pool_id")),
        sa.ForeignKeyConstraint(["reservation_id"], ["reservation.id"], name=op.f("fk_charge_reservation_id")),
        sa.PrimaryKeyConstraint("reservation_id", "number", name=op.f("pk_charge")),
    )
    op.create_index(
        "ix_charge_tenant_id_pool_id_returned_ms", "charge", ["tenant_id", "pool_id", "returned_ms"], unique=False
    )
    op.create_table(
        "usage",
        sa.Column("allocation_id", sa.String(), nullable=False),
        sa.Column("reservation_id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("pool_id", sa.String(), nullable=False),
        sa.Column("budget", sa.String(), nullable=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("milli", sa.BigInteger(), nullable=False),
        sa.Column("start_ms", sa.BigInteger(), nullable=False),
        sa.Column("end_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["allocation_id"], ["allocation.id"], name=op.f("fk_usage_allocation_id")),
        sa.ForeignKeyConstraint(["node_id"], ["node.id"], name=op.f("fk_usage_node_id")),
        sa.ForeignKeyConstraint(["pool_id"], ["pool.id"], name=op.f("fk_usage_pool_id")),
        sa.ForeignKeyConstraint(["reservation_id"], ["reservation.id"], name=op.f("fk_usage_reservation_id")),
        sa.PrimaryKeyConstraint("allocation_id", name=op.f("pk_usage")),
    )
    op.create_index("ix_usage_tenant_id_end_ms", "usage", ["tenant_id", "end_ms"], unique=False)
    op.create_table(
        "token",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("roles", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=True),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.Column("revoked_ms", sa.BigInteger(), nullable=True),
        sa.Column("last_used_ms", sa.BigInteger(), nullable=True),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_token")),
        sa.UniqueConstraint("hash", name=op.f("uq_token_hash")),
    )
    op.create_table(
        "access_policy",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_access_policy")),
    )
    op.create_table(
        "join_token",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("node_name", sa.String(), nullable=False),
        sa.Column("pool_id", sa.String(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.Column("used_ms", sa.BigInteger(), nullable=True),
        sa.Column("revoked_ms", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pool.id"], name=op.f("fk_join_token_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_join_token")),
        sa.UniqueConstraint("hash", name=op.f("uq_join_token_hash")),
    )
    op.create_table(
        "audit",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("object", sa.String(), nullable=False),
        sa.Column("decision", sa.String(), nullable=False),
        sa.Column("policies", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("before", sa.String(), nullable=True),
        sa.Column("after", sa.String(), nullable=True),
        sa.Column("seq", sa.BigInteger(), nullable=True),
        sa.Column("former_hash", sa.String(), nullable=True),
        sa.Column("hash", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_audit")),
        sa.UniqueConstraint("hash", name=op.f("uq_audit_hash")),
        sa.UniqueConstraint("seq", name=op.f("uq_audit_seq")),
    )


def downgrade() -> None:
    op.drop_table("audit")
    op.drop_table("join_token")
    op.drop_table("access_policy")
    op.drop_table("token")
    op.drop_index("ix_usage_tenant_id_end_ms", table_name="usage")
    op.drop_table("usage")
    op.drop_index("ix_charge_tenant_id_pool_id_returned_ms", table_name="charge")
    op.drop_table("charge")
    op.drop_table("quota")
    op.drop_index("ix_delivery_state_next_ms", table_name="delivery")
    op.drop_table("delivery")
    op.drop_table("webhook")
