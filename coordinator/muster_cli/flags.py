"""Says what is wrong with a request in the words of the command line: flags for fields, words for patterns. Pure."""

from typing import Final

_FLAGS: Final = {
    "tenantId": "--tenant",
    "poolId": "--pool",
    "devices.0.count": "--gpus",
    "devices.0.topology": "--topology",
    "devices.0.profile": "--mig",
    "devices.0.model": "--model",
    "devices.0.memoryGib": "--memory-gib",
    "gang.size": "--gang",
    "gang.topologyKey": "--same",
    "gang.topologyKeys": "--same, --prefer or --segment",
    "gang.segment.size": "--segment",
    "gang.segment.topologyKey": "--segment",
    "shares": "--shares",
    "start": "--start",
    "duration": "--for",
    "end": "--until",
    "latestStart": "--latest-start",
    "by": "--by",
    "until": "--until",
    "to": "--to",
    "at": "--at",
    "drop": "--drop",
    "latestStartAfter": "--latest-start-after",
    "rule": "--rule",
    "zone": "--zone",
    "firstDay": "--first-day",
    "from": "--from",
    "seriesId": "--series",
    "onMemberLoss": "--on-member-loss",
    "avoid": "--avoid",
    "idempotencyKey": "--key",
    "Idempotency-Key": "--key",
    "nodes": "--node",
    "bucket": "--bucket",
    "topologyKey": "--same",
    "state": "--state",
    "limit": "--limit",
    "after": "--after",
    "url": "URL",
    "Last-Event-ID": "--after",
    "subject": "--subject",
    "type": "--type",
    "device": "--device",
    "cause": "--cause",
    "reason": "--reason",
    "gpus": "GPUS",
}
"""Fields that exactly one flag fills. A name and labels are an argument of one command and a flag of another."""

_SELECTOR: Final = "nodeSelector."
_DROPPED: Final = "drop."
_PATTERN: Final = "String should match pattern "
_WORDS: Final = {
    r"'^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$'": "1 to 63 letters, digits and . _ / - ; the first a letter or digit",
    r"'^[A-Za-z0-9._:/ -]{0,128}$'": "at most 128 letters, digits, spaces and . _ : / -",
    r"'^[A-Za-z0-9][A-Za-z0-9-]{3,79}$'": "4 to 80 letters, digits and - ; the first a letter or digit",
    r"'^(?:[01][0-9]|2[0-3]):[0-5][0-9]$'": "a time of day such as 08:00",
    r"'^[0-9]{4}-[0-9]{2}-[0-9]{2}$'": "a day such as 2027-01-18",
    r"'^[\x21-\x7e]{1,128}$'": "1 to 128 visible ASCII characters",
}


def flag_of(path: str) -> str:
    """Return the flag that fills a field, or the field where no single flag does."""
    if path.startswith(_SELECTOR):
        return f"--node-selector {path.removeprefix(_SELECTOR)}"
    if path.startswith(_DROPPED):
        return "--drop"
    return _FLAGS.get(path, path)


def in_words(message: str) -> str:
    """Return what is wrong with a field without a pattern in it; one that is not known stays."""
    words = _WORDS.get(message.removeprefix(_PATTERN))
    return f"takes {words}" if words else message.removeprefix("Value error, ")
