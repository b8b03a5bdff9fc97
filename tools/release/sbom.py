#!/usr/bin/env python3
"""Writes the bill of materials (CycloneDX 1.6) of the libraries that the wheels include.

    tools/release/sbom.py VERSION LIBRARIES-FILE

The Debian packages and the sdist include no library: dpkg's dependencies name those of the system.
Needs cyclonedx-python-lib, whose schema the result is checked against, and nanobind. SOURCE_DATE_EPOCH is the time
that the result states."""

import importlib.metadata
import os
import sys
import uuid
from datetime import datetime, timezone

from cyclonedx.model import (
    ExternalReference,
    ExternalReferenceType,
    HashAlgorithm,
    HashType,
    XsUri,
)
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

LICENCES = {
    "zlib": "Zlib",
    "bzip2": "bzip2-1.0.6",
    "xz": "0BSD",
    "zstd": "BSD-3-Clause",
    "lz4": "BSD-2-Clause",
    "openssl": "Apache-2.0",
    "curl": "curl",
    "libarchive": "BSD-2-Clause",
    "sqlite": "blessing",
    "libjpeg-turbo": "IJG AND BSD-3-Clause AND Zlib",
    "libpng": "libpng-2.0",
    "libwebp": "BSD-3-Clause",
    "highway": "Apache-2.0 OR BSD-3-Clause",
    "xxhash": "BSD-2-Clause",
    "boost": "BSL-1.0",
    "json": "MIT",
    "fmt": "MIT",
    "cli11": "BSD-3-Clause",
    "ffmpeg": "LGPL-2.1-or-later",
}


def library(name, version, sha256, url):
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=name,
        purl=PackageURL("generic", None, name, version, {"download_url": url}),
        licenses=[LicenseExpression(LICENCES[name])],
        external_references=[
            ExternalReference(
                type=ExternalReferenceType.SOURCE_DISTRIBUTION,
                url=XsUri(url),
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)],
            )
        ],
    )


def wheel(name, version, licence):
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=name,
        purl=PackageURL("pypi", None, name, version),
        licenses=[LicenseExpression(licence)],
    )


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    version = sys.argv[1]
    with open(sys.argv[2], encoding="utf-8") as lines:
        libraries = [library(*line.split()) for line in lines if line.strip() and line[0] != "#"]
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_DNS, f"shardwise-{version}"))
    bom.metadata.timestamp = datetime.fromtimestamp(
        int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc
    )
    main_wheel = wheel("shardwise", version, "BSD-3-Clause")
    video = wheel("shardwise-video", version, "BSD-3-Clause AND LGPL-2.1-or-later")
    nanobind = wheel("nanobind", importlib.metadata.version("nanobind"), "BSD-3-Clause")
    libraries.append(nanobind)
    bom.metadata.component = main_wheel
    for component in [*libraries, video]:
        bom.components.add(component)
    bom.register_dependency(main_wheel, [one for one in libraries if one.name != "ffmpeg"])
    bom.register_dependency(video, [main_wheel, *(one for one in libraries if one.name != "cli11")])
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if fault:
        sys.exit(f"the result does not match the schema: {fault}")
    print(text)


main()
