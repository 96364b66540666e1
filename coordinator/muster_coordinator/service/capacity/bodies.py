"""Bodies of the questions about capacity over time. Instants are integers, milliseconds UTC; amounts whole GPUs."""

from typing import Annotated

from pydantic import Field

from muster_coordinator.service.bodies import WhenText
from muster_shared.codec import Count, Label, Message, Request, Text


class TimelineQuery(Request):
    """Which part of a pool's calendar, in buckets of which length."""

    pool_id: Annotated[Text | None, Field(description="Id or name; the pool named default when absent")] = None
    start: Annotated[
        WhenText | None, Field(description="RFC 3339, epoch ms, +2h or now; the bucket that now is in when absent")
    ] = None
    end: Annotated[WhenText | None, Field(description="At most 7 days after the start, and 7 days when absent")] = None
    duration: Annotated[WhenText | None, Field(description="Instead of end: 90s, 30m, 12h, 3d or ISO 8601")] = None
    bucket: Annotated[WhenText | None, Field(description="Length of a bucket; 30m when absent")] = None


class OutlookQuery(Request):
    """Which part of a pool's calendar, up to 120 days, and on which label gangs agree."""

    pool_id: Annotated[Text | None, Field(description="Id or name; the pool named default when absent")] = None
    start: Annotated[
        WhenText | None, Field(description="RFC 3339, epoch ms, +2h or now; the bucket that now is in when absent")
    ] = None
    end: Annotated[WhenText | None, Field(description="At most 120 days after the start; 28 days when absent")] = None
    duration: Annotated[WhenText | None, Field(description="Instead of end: 12h, 3d, 8w or ISO 8601")] = None
    bucket: Annotated[WhenText | None, Field(description="Length of a bucket; chosen by the window when absent")] = None
    topology_key: Annotated[Label, Field(description="Label on which gangs agree")] = "fabric.domain"


class BucketView(Message):
    """One stretch of the calendar, half open."""

    start: Count
    end: Count
    booked: Count  # distinct whole GPUs with any booking that overlaps it
    free: Count  # of those that are allocatable now


class TimelineView(Message):
    """A pool's calendar, bucket by bucket."""

    pool_id: str
    allocatable: Count  # whole GPUs, as the pool's rollup says now
    buckets: list[BucketView]


class OutlookBucketView(BucketView):
    """One stretch of the calendar, and the largest gang of whole nodes that is free for all of it."""

    largest_gang: Count  # nodes of one topology value
    topology_value: str | None = None  # the first value that has as many; absent where there is none


class OutlookView(Message):
    """A pool's calendar far ahead."""

    pool_id: str
    allocatable: Count  # whole GPUs, as the pool's rollup says now
    topology_key: str
    buckets: list[OutlookBucketView]
    largest_gang: dict[str, list[int]]  # by topology value: nodes wholly free for all of each bucket, in their order
