"""Score functions f(E_h, R_r, E_t): Eqs. 3-4 of the paper and those of its related work, in one dict.

A score is split where the engine needs it: `query(h, r)` gathers head and relation into one vector,
`compare(q, tails)` scores it against many tails. Where f is linear in the tail, `compare` is a matrix
product and nothing but `query` has to be written. Your own score takes about ten lines:

    class Scaled(Score):                      # f = <h, r, t> / sqrt(K)
        name = "scaled"

        def query(self, h, r):
            return h * r / h.shape[-1] ** 0.5

    kgem.model.scores.SCORES["scaled"] = Scaled()

Gradients of `query` come from autograd unless `query_vjp` is given as well. Scores that are not linear
in the tail set `bilinear = False` and give `compare` and `pair` (see TransE); those that are to be trained
without reciprocal facts give `transpose`; those with parameters that all facts share say how a relation's row
and these make one (see TuckER). docs/scores.md has the whole story.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kgem.errors import ConfigError

__all__ = ["SCORES", "Score", "find_score", "get_score"]


class Score:
    """A score function over rows of the tables E and R; complex rows are [real parts | imaginary parts]."""

    name: str = ""
    complex = False  # whether coordinates pair up to complex numbers, which the prior must know (Eq. 8)
    bilinear = True  # whether f is linear in the tail for given query: f = <query, tail>

    def entity_width(self, dim: int) -> int:
        """Real numbers per entity at embedding dimension K."""
        return 2 * dim if self.complex else dim

    def relation_width(self, dim: int) -> int:
        """Real numbers per relation at embedding dimension K."""
        return 2 * dim if self.complex else dim

    def shared_rows(self, dim: int) -> int:
        """Rows of R, beyond those of relations, that all facts share."""
        return 0

    def mix(self, r: Tensor, shared: Tensor) -> Tensor:
        """What `query` takes for relations where there are shared rows: (b, width), (shared_rows, width) -> (b, d)."""
        raise NotImplementedError

    def mix_vjp(self, r: Tensor, shared: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients with respect to r and the shared rows, given that with respect to mix(r, shared)."""
        return _vjp(self.mix, r, shared, grad)

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        """(b, entity_width), (b, relation_width) -> (b, query_width); r is mixed where there are shared rows."""
        raise NotImplementedError

    def query_vjp(self, h: Tensor, r: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients with respect to h and r, given that with respect to query(h, r)."""
        return _vjp(self.query, h, r, grad)

    def tails(self, table: Tensor) -> Tensor:
        """The columns of the entity table that tails use: a view (N_e, query_width)."""
        return table

    def compare(self, q: Tensor, tails: Tensor) -> Tensor:
        """Scores of each query against each tail: (b, d), (n, d) -> (b, n)."""
        return q @ tails.T

    def pair(self, q: Tensor, tails: Tensor) -> Tensor:
        """Scores of each query against its own tail: (..., d), (..., d) -> (...), which broadcast."""
        return (q * tails).sum(-1)

    def transpose(self, r: Tensor) -> Tensor:
        """The linear involution with f(h, r, t) = f(swap(t), transpose(r), swap(h)); isometric.

        Only the two-sided mode of Eq. 5 needs it. No default: a wrong guess would be wrong silently.
        """
        raise ConfigError(
            f"the score {self.name!r} does not say how to read a relation from tail to head",
            remedy="give it `transpose` (and `swap`), or train with reciprocal facts",
        )

    def swap(self, e: Tensor) -> Tensor:
        """Exchange an entity's role as head with its role as tail; see transpose."""
        return e

    def triple(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        """f(h, r, t) row by row: (b,)."""
        return self.pair(self.query(h, r), self.tails(t))


class DistMult(Score):
    """Eq. 3: sum_k h_k r_k t_k."""

    name = "distmult"

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        return h * r

    def query_vjp(self, h: Tensor, r: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad * r, grad * h

    def transpose(self, r: Tensor) -> Tensor:
        return r


class ComplEx(Score):
    """Eq. 4: Re sum_k h_k r_k conj(t_k)."""

    name = "complex"
    complex = True

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        h_re, h_im = h.chunk(2, dim=-1)
        r_re, r_im = r.chunk(2, dim=-1)
        return torch.cat([h_re * r_re - h_im * r_im, h_re * r_im + h_im * r_re], dim=-1)

    def query_vjp(self, h: Tensor, r: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        # The adjoint of multiplying by r is multiplying by its conjugate.
        return self._times_conjugate(grad, r), self._times_conjugate(grad, h)

    @staticmethod
    def _times_conjugate(x: Tensor, y: Tensor) -> Tensor:
        (x_re, x_im), (y_re, y_im) = x.chunk(2, dim=-1), y.chunk(2, dim=-1)
        re = torch.addcmul(x_re * y_re, x_im, y_im)
        return torch.cat([re, torch.addcmul(x_im * y_re, x_re, y_im, value=-1)], dim=-1)

    def transpose(self, r: Tensor) -> Tensor:
        re, im = r.chunk(2, dim=-1)
        return torch.cat([re, -im], dim=-1)


class CP(Score):
    """Canonical decomposition: one table of 2K columns, head half and tail half; sum_k h_k r_k t_{K+k}."""

    name = "cp"

    def entity_width(self, dim: int) -> int:
        return 2 * dim

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        return h[..., : r.shape[-1]] * r

    def query_vjp(self, h: Tensor, r: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        grad_h = torch.cat([grad * r, torch.zeros_like(grad)], dim=-1)
        return grad_h, grad * h[..., : r.shape[-1]]

    def tails(self, table: Tensor) -> Tensor:
        return table[..., table.shape[-1] // 2 :]

    def transpose(self, r: Tensor) -> Tensor:
        return r

    def swap(self, e: Tensor) -> Tensor:
        return e.roll(e.shape[-1] // 2, dims=-1)


class HolE(Score):
    """Circular correlation: sum_k r_k sum_i h_i t_{(i+k) mod K}, that is <h convolved with r, t>."""

    name = "hole"

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        h, r = h.contiguous(), r.contiguous()  # torch 2.6 transforms no expanded rows
        q: Tensor = torch.fft.irfft(torch.fft.rfft(h) * torch.fft.rfft(r), n=h.shape[-1])
        return q

    def query_vjp(self, h: Tensor, r: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        return self.query(grad, self.transpose(r)), self.query(grad, self.transpose(h))

    def transpose(self, r: Tensor) -> Tensor:
        return torch.cat([r[..., :1], r[..., 1:].flip(-1)], dim=-1)


class Rescal(Score):
    """h^T R t with a full K x K matrix per relation, stored row by row."""

    name = "rescal"

    def relation_width(self, dim: int) -> int:
        return dim * dim

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        return torch.einsum("...i,...ij->...j", h, self._matrix(r))

    def query_vjp(self, h: Tensor, r: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        grad_h = torch.einsum("...ij,...j->...i", self._matrix(r), grad)
        return grad_h, torch.einsum("...i,...j->...ij", h, grad).flatten(-2)

    def transpose(self, r: Tensor) -> Tensor:
        return self._matrix(r).transpose(-1, -2).flatten(-2)

    @staticmethod
    def _matrix(r: Tensor) -> Tensor:
        dim = round(r.shape[-1] ** 0.5)
        return r.reshape(*r.shape[:-1], dim, dim)


class TuckER(Rescal):
    """W x1 r x2 h x3 t: RESCAL whose matrix is R_ij = <r, W_ij>, with a core W of K x K rows that all facts share."""

    name = "tucker"

    def relation_width(self, dim: int) -> int:
        return dim

    def shared_rows(self, dim: int) -> int:
        return dim * dim

    def mix(self, r: Tensor, shared: Tensor) -> Tensor:
        return r @ shared.T

    def mix_vjp(self, r: Tensor, shared: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad @ shared, grad.T @ r


class QuatE(Score):
    """<h (x) r, t> with K quaternions each and Hamilton's product; r keeps its length, which the prior limits.

    A quaternion x = u + v j is a pair of complex numbers, and a row is [u | v] with real parts first, so that the prior
    takes the moduli of u and v: (u + v j)(w + z j) = u w - v conj(z) + (u z + v conj(w)) j.
    """

    name = "quate"
    complex = True

    def entity_width(self, dim: int) -> int:
        return 4 * dim

    def relation_width(self, dim: int) -> int:
        return 4 * dim

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        a, c, b, d = h.chunk(4, dim=-1)  # a + b i + c j + d k
        w, y, x, z = r.chunk(4, dim=-1)
        parts = (
            a * w - b * x - c * y - d * z,
            a * y - b * z + c * w + d * x,
            a * x + b * w + c * z - d * y,
            a * z + b * y - c * x + d * w,
        )
        return torch.cat(parts, dim=-1)

    def query_vjp(self, h: Tensor, r: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        # The adjoint of multiplying by a quaternion, from either side, is multiplying by its conjugate.
        return self.query(grad, self.transpose(r)), self.query(self.transpose(h), grad)

    def transpose(self, r: Tensor) -> Tensor:
        real, rest = r.tensor_split((r.shape[-1] // 4,), dim=-1)
        return torch.cat([real, -rest], dim=-1)


class TransE(Score):
    """-||h + r - t|| in the L1 or L2 norm: a translation, not linear in the tail."""

    bilinear = False

    def __init__(self, norm: int) -> None:
        self.norm = norm
        self.name = f"transe-l{norm}"

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        return h + r

    def query_vjp(self, h: Tensor, r: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, grad

    def compare(self, q: Tensor, tails: Tensor) -> Tensor:
        # As a matrix product, which is cdist's choice for L2, small distances would be lost to cancellation.
        return -torch.cdist(q, tails, p=float(self.norm), compute_mode="donot_use_mm_for_euclid_dist")

    def pair(self, q: Tensor, tails: Tensor) -> Tensor:
        distance: Tensor = torch.linalg.vector_norm(q - tails, ord=self.norm, dim=-1)
        return -distance

    def transpose(self, r: Tensor) -> Tensor:
        return -r


SCORES: dict[str, Score] = {
    score.name: score
    for score in (DistMult(), ComplEx(), CP(), HolE(), QuatE(), Rescal(), TuckER(), TransE(1), TransE(2))
}


def _vjp(function: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of <function(x, y), grad>, by autograd."""
    with torch.enable_grad():
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        grads = torch.autograd.grad(function(x, y), (x, y), grad, materialize_grads=True)
    return grads[0], grads[1]


def get_score(name: str) -> Score:
    """The score of that name, or an error that says which may have been meant."""
    try:
        return SCORES[name]
    except KeyError:
        known = sorted(SCORES)
        near = [each for each in known if name and each.startswith(name.casefold())]
        near = near or difflib.get_close_matches(name.casefold(), known, n=2)
        remedy = f"did you mean {', '.join(near)}?" if near else f"one of {', '.join(known)}"
        raise ConfigError(f"no score function is called {name!r}", remedy=remedy) from None


def find_score(name: Any) -> Any:
    """The name as scores have it, where it differs in case only, as in ComplEx; else what was given."""
    meant = [each for each in SCORES if isinstance(name, str) and each.casefold() == name.casefold()]
    return meant[0] if len(meant) == 1 else name
