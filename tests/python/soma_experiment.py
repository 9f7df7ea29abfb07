"""Writes a small SOMA experiment with `tiledbsoma` and what that package reads back:
`python soma_experiment.py FOLDER` makes FOLDER/soma and FOLDER/soma.json. `fixtures/tiledb/soma` was made so by
tiledbsoma 2.3.0."""

import json
import sys
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import scipy.sparse
import tiledbsoma
import tiledbsoma.io


def annotated(rng, cells=12, genes=7):
    """Annotated data: cells with a category, numbers and a flag; genes; mostly zero counts; an embedding."""
    obs = pd.DataFrame({
        "cell_type": pd.Categorical(rng.choice(["B", "T", "NK"], cells)),
        "n_genes": rng.integers(0, 50, cells),
        "score": rng.random(cells),
        "good": rng.random(cells) > 0.5,
    }, index=[f"cell{i}" for i in range(cells)])
    var = pd.DataFrame({"symbol": [f"G{i}" for i in range(genes)], "mean": rng.random(genes).astype("f4")},
                       index=[f"ens{i}" for i in range(genes)])
    counts = np.where(rng.random((cells, genes)) < 0.4, rng.random((cells, genes)), 0).astype("f4")
    data = anndata.AnnData(X=scipy.sparse.csr_matrix(counts), obs=obs, var=var)
    data.obsm["X_pca"] = rng.random((cells, 3))
    return data


def main(folder):
    uri = str(Path(folder) / "soma")
    tiledbsoma.io.from_anndata(uri, annotated(np.random.default_rng(7)), measurement_name="RNA")
    with tiledbsoma.Experiment.open(uri) as experiment:
        rna = experiment.ms["RNA"]
        expected = {
            "obs": experiment.obs.read().concat().to_pylist(),
            "ms/RNA/var": rna.var.read().concat().to_pylist(),
            "ms/RNA/X/data": rna.X["data"].read().tables().concat().to_pylist(),
            "ms/RNA/obsm/X_pca": rna.obsm["X_pca"].read().tables().concat().to_pylist(),
        }
    (Path(folder) / "soma.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
