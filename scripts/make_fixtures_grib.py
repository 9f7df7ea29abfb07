#!/usr/bin/env python3
"""Make the GRIB fixtures: small files written by ecCodes 2.50.

    make_fixtures_grib.py          # writes fixtures/grib and its manifest

Rust tests run the conformance suite on them, truncate them and flip their bytes. Comparisons with the references are in
tests/python/test_grib_references.py, on files of every feature.
"""

import hashlib
import json
import sys
from pathlib import Path

import eccodes
import numpy as np

BASE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BASE / "tests" / "python"))
import grib_files as grib  # noqa: E402

ROOT = BASE / "fixtures" / "grib"
MISSING = np.arange(63) % 5 == 2


def main():
    ROOT.mkdir(parents=True, exist_ok=True)
    files = {}
    for edition, packings in grib.PACKINGS.items():
        for packing in packings:
            files[f"{packing}_{edition}"] = [grib.message(edition, packing=packing, bits=12, small=packing != "grid_png")]
    for edition, packing in [(1, "grid_simple"), (2, "grid_simple"), (2, "grid_complex"), (2, "grid_ccsds")]:
        files[f"bitmap_{packing}_{edition}"] = [grib.message(edition, packing=packing, bits=9, missing=MISSING)]
    files["constant"] = [grib.message(2, values=np.full(63, 273.0))]
    files["cube"] = [grib.message(2, keys={"level": level, "dataDate": date}) for level, date in [(500, 20200101), (850, 20200101), (500, 20200102)]]
    files["groups"] = [grib.message(1, keys={"level": 500}), b"between", grib.message(1, keys={"indicatorOfTypeOfLevel": 1, "level": 0})]
    files["columns"] = [grib.message(2, keys={"jPointsAreConsecutive": 1, "alternativeRowScanning": 1})]
    entries = {}
    for name, messages in files.items():
        data = b"".join(messages)
        (ROOT / f"{name}.grib").write_bytes(data)
        entries[f"{name}.grib"] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest = {"written_by": f"ecCodes {eccodes.codes_get_api_version()}", "files": entries}
    (ROOT / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


if __name__ == "__main__":
    main()
