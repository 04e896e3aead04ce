"""A certificate authority of our own, for one server on the loopback address; made by the program `openssl`."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.rings import require

MAKE_SECONDS: Final = 100.0
CONFIGURATION: Final = """\
[req]
distinguished_name = name
prompt = no
[name]
CN = segmented tests
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[member]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = IP:127.0.0.1
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


@dataclass(frozen=True, slots=True)
class Certificates:
    """What a server and its clients need to trust each other, as files."""

    authority: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path) -> Certificates:
    """Make an authority and one certificate, for servers on 127.0.0.1 and for clients alike."""
    program = shutil.which("openssl")
    require("openssl", found=program is not None, missing="the program openssl is not on the PATH")
    configuration = folder / "openssl.cnf"
    configuration.write_text(CONFIGURATION)
    made = Certificates(folder / "authority.pem", folder / "member.pem", folder / "member.key")
    signing = folder / "authority.key"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    common = (str(program), "req", "-x509", "-config", str(configuration), "-days", "2", "-nodes", *curve)
    signed_by = ("-CA", str(made.authority), "-CAkey", str(signing))
    for section, key, certificate, extra in (
        ("authority", signing, made.authority, ()),
        ("member", made.key, made.certificate, signed_by),
    ):
        argv = (*common, "-extensions", section, "-keyout", str(key), "-out", str(certificate), *extra)
        subprocess.run(argv, check=True, capture_output=True, timeout=MAKE_SECONDS)
    return made
