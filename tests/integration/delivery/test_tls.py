"""Certificates are checked, and only against the authorities that are set."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from duetime.delivery.port import TransportError
from tests.integration.delivery.conftest import Sending
from tests.support.receiver import Exchange, Receiver, hang_up, reply


def _self_signed(folder: Path, host: str) -> Path:
    """A certificate for ``host`` that is its own authority, with its key, in one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{host}.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("certificates")
    return {host: _self_signed(folder, host) for host in ("localhost", "elsewhere.test")}


@pytest.fixture
def served(certificates: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[Receiver]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates[request.param])
    with Receiver(tls=context) as receiver:
        yield receiver


@pytest.mark.parametrize("served", ["localhost"], indirect=True)
def test_a_certificate_of_a_trusted_authority_is_accepted(
    start: Callable[..., Sending], served: Receiver, certificates: dict[str, Path]
) -> None:
    sending = start(ca_file=str(certificates["localhost"]))
    assert sending.post(served.url()).status == 200
    assert sending.post(served.url()).status == 200
    assert served.connections == 1


@pytest.mark.parametrize("served", ["localhost"], indirect=True)
def test_a_kept_connection_that_ended_is_replaced(
    start: Callable[..., Sending], served: Receiver, certificates: dict[str, Path]
) -> None:
    """Session tickets, which a server sends unasked, are no end; closing is."""
    sending = start(ca_file=str(certificates["localhost"]))

    async def answer_and_close(exchange: Exchange) -> None:
        await reply(200)(exchange)
        await hang_up(exchange)

    url = served.on("/", *[reply(200)] * 4, answer_and_close, reply(201), hang_up)
    assert [sending.post(url).status for _ in range(5)] == [200] * 5
    assert served.connections == 1
    served.wait_for_ends(1)
    assert sending.post(url).status == 201
    assert sending.post(url).error is TransportError.PROTOCOL
    assert len(served.requests) == 7


@pytest.mark.parametrize(
    ("served", "trusted"),
    [("localhost", "elsewhere.test"), ("elsewhere.test", "elsewhere.test"), ("localhost", None)],
    indirect=["served"],
    ids=["unknown authority", "another host's", "no file"],
)
def test_any_other_certificate_is_a_tls_error(
    start: Callable[..., Sending],
    served: Receiver,
    certificates: dict[str, Path],
    trusted: str | None,
    tmp_path: Path,
) -> None:
    sending = start(ca_file=str(certificates[trusted] if trusted else tmp_path / "missing.pem"))
    result = sending.post(served.url())
    assert (result.error, result.status) == (TransportError.TLS, None)
    assert served.requests == []
