"""Products by the wider library: as exact as torch.mm, equal rows stay equal, and the permission is given back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kgem.model import products
from kgem.model.products import add_product, is_wide, multiply

SIZES = st.integers(1, 300)


def factors(n: int, k: int, m: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, k, generator=generator), torch.randn(k, m, generator=generator)


def assert_exact(got: Tensor, a: Tensor, b: Tensor, plus: float = 0.0) -> None:
    """Within what float32 sums in any order leave: a hundredth of what factors rounded to bfloat16 would."""
    want = a.double() @ b.double() + plus
    allowed = 2**-23 * a.shape[1] ** 0.5 * (a.abs().double() @ b.abs().double() + abs(plus))
    assert bool(((got.double() - want).abs() <= allowed + 1e-30).all())


@given(SIZES, SIZES, SIZES, st.integers(0, 5), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_is_exact_in_float32_whatever_the_shape_and_layout(
    n: int, k: int, m: int, seed: int, turned: bool, padded: bool
) -> None:
    a, b = factors(n, k, m, seed)
    if turned:
        a, b = a.T.contiguous().T, b.T.contiguous().T
    out = torch.full((n, m + 16), 7.0)[:, : m + 16 * (not padded)][:, :m]
    assert multiply(a, b, out=out) is out
    assert_exact(out, a, b)
    assert_exact(multiply(a, b), a, b)
    assert_exact(add_product(torch.full((n, m), 3.0), a, b), a, b, plus=3.0)


@given(st.integers(16, 120), st.integers(16, 200), st.integers(100, 900), st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_equal_rows_have_equal_scores(n: int, k: int, m: int, different: int) -> None:
    queries, rows = factors(n, k, different)
    which = torch.arange(m) % different
    scores = multiply(queries, rows.T[which].T)
    if n * k * m >= products.LEAST_SIZE:  # below it is MKL's product, which does not promise it for few queries
        assert torch.equal(scores, scores[:, which])


def test_other_types_are_multiplied_as_ever() -> None:
    a, b = factors(130, 140, 150)
    assert torch.equal(multiply(a.double(), b.double()), a.double() @ b.double())
    rounded = a.bfloat16(), b.bfloat16()
    assert torch.equal(multiply(*rounded), torch.mm(*rounded))


def permission() -> str:
    matmul = getattr(torch.backends.mkldnn, "matmul", None)
    return str(getattr(matmul, "fp32_precision", "unknown"))


def test_the_permission_is_given_back_by_the_last_of_several_threads() -> None:
    before = permission()
    a, b = factors(200, 100, 200)
    want = multiply(a, b)
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(got, want) for got in pool.map(lambda _: multiply(a, b), range(200)))
    assert permission() == before
    with pytest.raises(RuntimeError):
        multiply(a, b[1:])
    assert permission() == before


def test_what_the_user_permits_is_kept() -> None:
    if permission() == "unknown":
        pytest.skip("this torch has no such permission")
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = matmul.fp32_precision
    matmul.fp32_precision = "ieee"
    try:
        multiply(*factors(200, 100, 200))
        assert permission() == "ieee"
    finally:
        matmul.fp32_precision = before


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        (products, "_processor", lambda: "vendor_id : GenuineIntel"),
        (products, "_processor", lambda: ""),
        (torch.cpu, "_is_amx_tile_supported", lambda: True),
        (torch.backends.cpu, "get_cpu_capability", lambda: "AVX2"),
        (torch.backends.mkl, "is_available", lambda: False),
        (torch, "mm", lambda a, b: (a.bfloat16() @ b.bfloat16()).float()),
    ],
)
def test_is_not_wide_where_it_would_not_pay_or_would_round(
    where: object, name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, value)
    assert not is_wide.__wrapped__()


def test_without_it_products_are_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = factors(200, 100, 200)
    monkeypatch.setattr(products, "is_wide", lambda: False)
    assert torch.equal(multiply(a, b), torch.mm(a, b))
    assert torch.equal(add_product(torch.ones(200, 200), a, b), torch.ones(200, 200).addmm_(a, b))
