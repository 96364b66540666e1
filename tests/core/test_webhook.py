"""Where webhooks may go, how they are signed, and when they are tried again."""

import json
from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from muster_coordinator.clock import SystemClock
from muster_coordinator.core.webhook.retries import JITTER_PERMILLE, RETRY_AFTER_MS, retry_at_ms
from muster_coordinator.core.webhook.signature import headers, new_secret, shown_secret
from muster_coordinator.core.webhook.targets import Allowed, address_fault, allowed, host_fault, url_fault

NOTHING = Allowed()
DAY_MS = 86_400_000
OLD, NEW = new_secret("o" * 43), new_secret("n" * 43)

FORBIDDEN = {
    "loopback": "127.0.0.1",
    "all of loopback": "127.8.9.10",
    "this host": "0.0.0.0",
    "private, 10": "10.1.2.3",
    "private, 172.16": "172.31.255.255",
    "private, 192.168": "192.168.0.1",
    "metadata": "169.254.169.254",
    "carrier's": "100.64.0.1",
    "multicast": "224.0.0.251",
    "broadcast": "255.255.255.255",
    "documentation": "192.0.2.1",
    "benchmarking": "198.18.0.1",
    "loopback, v6": "::1",
    "this host, v6": "::",
    "private, v6": "fd00::1",
    "link-local, v6": "fe80::1%eth0",
    "site-local, v6": "fec0::1",
    "multicast, v6": "ff02::1",
    "mapped": "::ffff:127.0.0.1",
    "mapped metadata": "::ffff:a9fe:a9fe",
    "compatible": "::7f00:1",
    "NAT64": "64:ff9b::7f00:1",
    "local NAT64": "64:ff9b:1::a00:1",
    "6to4": "2002:7f00:1::",
    "teredo": "2001:0:5db8:d822:0:0:80ff:fffe",
    "decimal": "2130706433",
    "octal": "0177.0.0.1",
    "hexadecimal": "0x7f.0.0.1",
    "short": "127.1",
}


@pytest.mark.parametrize("address", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_nothing_is_sent_inside(address: str) -> None:
    assert address_fault(address, "hooks.example", is_tls=True, inside=NOTHING)


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
)
def test_the_public_internet_is_sent_to_over_tls_alone(address: str) -> None:
    assert address_fault(address, "hooks.example", is_tls=True, inside=NOTHING) is None
    assert "use https" in (address_fault(address, "hooks.example", is_tls=False, inside=NOTHING) or "")


@pytest.mark.parametrize(
    ("entry", "address", "host"),
    [
        ("10.0.0.0/8", "10.1.2.3", "anything.example"),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("10.0.0.0/8", "::ffff:10.1.2.3", "anything.example"),
        ("fd00::/8", "fd00::1", "anything.example"),
        ("hooks.internal", "10.1.2.3", "hooks.internal"),
        ("Hooks.Internal", "10.1.2.3", "hooks.INTERNAL."),
    ],
)
def test_what_an_operator_allows_is_sent_to_also_without_tls(entry: str, address: str, host: str) -> None:
    inside = allowed([entry])

    assert address_fault(address, host, is_tls=False, inside=inside) is None
    assert address_fault("192.168.7.7", "other.example", is_tls=True, inside=inside)


@pytest.mark.parametrize("entry", ["", "10.0.0.0/33", "10.0.0.1/8", "http://x", "a b", "127.1", "*.example", "-x"])
def test_what_allows_nothing_is_told_by_its_own_words(entry: str) -> None:
    with pytest.raises(ValueError, match=r"is no address, no network such as 10\.0\.0\.0/8, and no host name"):
        allowed([entry])


URLS = {
    "no scheme": "hooks.example/x",
    "another scheme": "ftp://hooks.example/x",
    "a file": "file:///etc/passwd",
    "no host": "https:///x",
    "user and password": "https://user:pw@hooks.example/x",
    "a user": "https://127.0.0.1@hooks.example/x",
    "a fragment": "https://hooks.example/x#y",
    "a port beyond all": "https://hooks.example:99999/x",
    "a blank": "https://hooks.example/ x",
    "a backslash": "https://hooks.example\\@127.0.0.1/",
    "a line": "https://hooks.example/\nHost: x",
    "letters that look alike": "https://h\u043eoks.example/",
    "too long": "https://hooks.example/" + "x" * 2_100,
    "an address inside": "https://127.0.0.1/",
    "a number": "https://2130706433/",
    "hexadecimal": "https://0x7f000001/",
    "octal": "https://0177.0.0.1/",
    "short": "https://127.1/",
    "v6 inside": "https://[::1]/",
    "v6 mapped": "https://[::ffff:127.0.0.1]/",
    "without TLS": "http://hooks.example/",
    "an address without TLS": "http://1.1.1.1/",
}


@pytest.mark.parametrize("url", URLS.values(), ids=URLS.keys())
def test_a_url_that_nothing_may_be_sent_to_is_refused_when_it_is_given(url: str) -> None:
    assert url_fault(url, NOTHING)


@pytest.mark.parametrize(
    "url", ["https://hooks.example/x?y=1", "https://hooks.example:8443", "https://[2606:4700::1111]/"]
)
def test_a_public_url_is_taken(url: str) -> None:
    assert url_fault(url, NOTHING) is None


def test_a_name_without_tls_waits_for_its_address_where_some_network_is_allowed() -> None:
    inside = allowed(["10.0.0.0/8"])

    assert url_fault("http://hooks.internal/", inside) is None
    assert address_fault("93.184.216.34", "hooks.internal", is_tls=False, inside=inside)


@given(st.text(max_size=80))
def test_no_text_makes_the_check_of_a_url_fail(text: str) -> None:
    for url in (text, f"https://{text}", f"http://{text}/"):
        fault = url_fault(url, NOTHING)
        assert fault is None or fault


@given(st.ip_addresses())
def test_a_host_that_is_an_address_is_judged_as_that_address(address: object) -> None:
    text = str(address)

    assert host_fault(text, is_tls=True, inside=NOTHING) == address_fault(text, text, is_tls=True, inside=NOTHING)


def signed(*secrets: str, body: bytes = b'{"a":1}', late_s: int = 0) -> tuple[bytes, dict[str, str]]:
    now_s = SystemClock().moment().ms // 1_000
    return body, headers(secrets, "evt_1", now_s - late_s, body)


@pytest.mark.parametrize("secret", [OLD, NEW])
def test_while_a_secret_is_changed_either_one_verifies(secret: str) -> None:
    body, sent = signed(NEW, OLD)

    assert Webhook(shown_secret(secret)).verify(body, sent) == {"a": 1}


@pytest.mark.parametrize("change", ["body", "id", "time", "secret", "age"])
def test_a_forged_or_repeated_event_is_refused_by_the_reference_library(change: str) -> None:
    body, sent = signed(NEW, late_s=301 if change == "age" else 0)
    if change == "body":
        body = b'{"a":2}'
    if change == "id":
        sent["webhook-id"] = "evt_2"
    if change == "time":
        sent["webhook-timestamp"] = str(int(sent["webhook-timestamp"]) - 1)
    secret = OLD if change == "secret" else NEW

    with pytest.raises(WebhookVerificationError):
        Webhook(shown_secret(secret)).verify(body, sent)


def test_a_signature_is_the_one_that_the_library_makes() -> None:
    body, sent = signed(NEW, body=json.dumps({"x": "ä"}).encode())
    library = Webhook(shown_secret(NEW))

    assert library.verify(body, sent) == {"x": "ä"}
    assert len(b64decode(NEW)) == 43


def test_a_delivery_is_tried_by_the_table_and_for_more_than_a_day() -> None:
    waits = [retry_at_ms(attempts, 0, 0) for attempts in range(1, len(RETRY_AFTER_MS) + 2)]

    assert waits == [*RETRY_AFTER_MS, None]
    assert DAY_MS < sum(RETRY_AFTER_MS) < DAY_MS * 1.1
    assert list(RETRY_AFTER_MS) == sorted(RETRY_AFTER_MS)


@given(st.integers(1, len(RETRY_AFTER_MS)), st.integers(0, JITTER_PERMILLE))
def test_a_wait_is_longer_by_a_tenth_at_the_most(attempts: int, jitter_permille: int) -> None:
    again_ms = retry_at_ms(attempts, 1_000, jitter_permille)

    assert again_ms is not None
    assert RETRY_AFTER_MS[attempts - 1] <= again_ms - 1_000 <= RETRY_AFTER_MS[attempts - 1] * 1.1
