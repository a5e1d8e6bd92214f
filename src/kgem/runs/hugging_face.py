"""A model as a folder that can be pushed to Hugging Face: safetensors, config, model card, and kgem's own files.

What `kgem.load` reads is in `model/`, as in a run folder; the files beside it are for programs that do not know kgem.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kgem.answer.model import Model
from kgem.answer.unfinished import describe_missing
from kgem.data.dataset import SPLITS
from kgem.files.store import kgem_version

__all__ = ["write_hugging_face"]

TAGS = ["knowledge-graph", "knowledge-graph-embedding", "link-prediction", "kgem"]
METRICS = {"mrr": "filtered MRR", "hits_at_1": "filtered Hits@1", "hits_at_10": "filtered Hits@10"}
CARD = """\
# {title}

Embeddings of the knowledge graph {graph} ({sizes}),
fitted with kgem: score function `{score}`, K = {dim}, one regulariser strength per entity and relation, learned by
variational EM.{unfinished}

{metrics}
## How to use it

With kgem, for answers that have a calibrated probability and a range (`REPOSITORY` is where this folder was pushed to):

```python
import kgem
from huggingface_hub import snapshot_download

model = kgem.load(snapshot_download("REPOSITORY"))
model.predict(head={head}, relation={relation}, top=5)
```

With anything else: `model.safetensors` has the tables of mode `{mode}`, `entities` {entities} and `relations`
{relations}, and the learned strengths of their rows; `vocabulary.json` has the labels of the rows; `config.json` the
rest. {layout}

## What is in it, and what it is not for

`model/` holds the facts of the graph that the model was fitted to: publish it only where those may be published. A
probability says which answer, given that there is one. It is about this graph, not about the world: what the graph has
wrong, or shows one side of, the model has learned.
"""


def write_hugging_face(model: Model, mode: str, folder: Path) -> None:
    """README.md, config.json, vocabulary.json, model.safetensors; and model/, which kgem reads."""
    from safetensors.torch import save_file

    tables, data = model.tables(mode), model.data
    tensors = dict(zip(("entities", "relations"), tables.tables(), strict=True))
    tensors |= dict(zip(("entity_strengths", "relation_strengths"), model.learned, strict=True))
    if tables.n_shared:
        for name, of in (("relations", "shared"), ("relation_strengths", "shared_strengths")):
            tensors[name], tensors[of] = tensors[name].tensor_split([tables.n_own])
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "model_type": "kgem",
        "score": model.config.model.score,
        "dim": model.config.model.dim,
        "reciprocal": tables.reciprocal,
        "mode": mode,
        "temperature": model.temperature(mode).to_dict(),
        "n_entities": data.n_entities,
        "n_relations": data.n_relations,
        "torch_dtype": str(tables.entities.dtype).removeprefix("torch."),
        "kgem_version": kgem_version(),
    }
    _write_json(folder / "config.json", config)
    _write_json(folder / "vocabulary.json", {"entities": list(data.entities), "relations": list(data.relations)})
    (folder / "README.md").write_text(write_card(model, mode), encoding="utf-8")
    model.save(folder / "model")


def write_card(model: Model, mode: str) -> str:
    """The model card: a header of metadata in YAML, and what a reader wants to know first."""
    data, config, tables = model.data, model.config.model, model.tables(mode)
    sizes = " / ".join(f"{len(data.split(split)):,}" for split in SPLITS)
    head, relation, _ = data.label(data.train[0])
    complex_rows = "A row is real parts first, then imaginary parts. " if tables.score.complex else ""
    twice = "Relations come twice, first as they are, then reversed." if tables.reciprocal else ""
    shared = f" `shared` has {tables.n_shared:,} more rows, which all facts use." if tables.n_shared else ""
    body = CARD.format(
        title=_in_line(f"{config.score} of {data.name}"),
        graph=_in_line(data.name),
        sizes=f"{data.n_entities:,} entities, {data.n_relations:,} relations, {sizes} facts in train, valid and test",
        score=config.score,
        dim=config.dim,
        unfinished=f"\n\n**Unfinished:** {describe_missing(model)}." if model.unfinished else "",
        metrics=_metrics_table(_overall(model)),
        head=_in_code(head),
        relation=_in_code(relation),
        mode=mode,
        entities=tuple(tables.entities.shape),
        relations=(tables.n_own, tables.relations.shape[1]),
        layout=complex_rows + twice + shared,
    )
    # JSON is YAML: no label can break out of the header.
    header = "".join(f"{key}: {json.dumps(value)}\n" for key, value in _metadata(model).items())
    return f"---\n{header}---\n\n{body}"


def _metadata(model: Model) -> dict[str, Any]:
    """What the hub reads; the licence is for whoever publishes it to say."""
    name = f"{model.config.model.score}-{model.data.name}"
    results = [
        {
            "task": {"type": "link-prediction", "name": "Link prediction"},
            "dataset": {"name": model.data.name, "type": model.data.name, "split": split},
            "metrics": [{"type": key, "name": said, "value": float(found[key])} for key, said in METRICS.items()],
        }
        for split, found in _overall(model).items()
    ]
    document = {"library_name": "kgem", "pipeline_tag": "graph-ml", "tags": TAGS}
    return document | ({"model-index": [{"name": name, "results": results}]} if results else {})


def _overall(model: Model) -> dict[str, Mapping[str, float]]:
    """What was measured with the fit, by split."""
    return {s: model.metrics[s]["overall"] for s in ("valid", "test") if "overall" in model.metrics.get(s, {})}


def _metrics_table(overall: Mapping[str, Mapping[str, float]]) -> str:
    if not overall:
        return ""
    rows = [
        f"| {split} | " + " | ".join(f"{found[key]:.4f}" for key in METRICS) + " |" for split, found in overall.items()
    ]
    head = f"| ranks of | {' | '.join(METRICS.values())} |"
    return "\n".join([head, "|---" * (len(METRICS) + 1) + "|", *rows, ""])


def _in_line(text: str) -> str:
    """A label in a line of Markdown: nothing in it is markup."""
    joined = " ".join(text.split())
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>()#|" else c for c in joined)


def _in_code(text: str) -> str:
    """A label as a string of Python that cannot end the block of code."""
    return json.dumps(text).replace("`", "\\u0060")


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
