"""`kgem similar`: the entities that are most like one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from kgem.cli.arguments import AsCsv, AsJson, Device, Force, Mode, Out, RunFolder
from kgem.cli.console import emit, heading, table
from kgem.cli.destination import Destination
from kgem.cli.opening import open_model

COLUMNS = ("label", "cosine", "frequency")


def similar(
    run: RunFolder,
    entity: Annotated[str, typer.Argument(help="Its label or name.")],
    top: Annotated[int, typer.Option(min=1, help="How many to list.")] = 10,
    mode: Mode = "auto",
    device: Device = "cpu",
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    out: Out = None,
    force: Force = False,
) -> None:
    """List the entities whose vectors point the same way as that of one: it plays a similar part in the graph."""
    destination = Destination(as_json, as_csv, out, force)
    model = open_model(run, device)
    from kgem.answer.labels import entity_id

    entities = model.data.entities
    entity = entities[entity_id(model.data, entity)]
    found = model.similar(entity, top, mode)
    if destination.is_table:
        rows = [
            (f"{place}", entities.show(each.label), f"{each.cosine:.3f}", each.frequency)
            for place, each in enumerate(found, 1)
        ]
        emit(
            heading(f"Similar to {entities.show(entity)}", space=False),
            table(["", "entity", "cosine", "facts"], rows, left=2),
        )
    else:
        near = [asdict(each) for each in found]
        destination.write({"entity": entity, "similar": near}, near, COLUMNS)
