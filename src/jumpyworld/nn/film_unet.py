"""The FiLM U-Net, and the conditional field network built on it.

    c = encoder(s, a, z) + embed(gamma)                    once per sample: ``prepare``
    e = embed(t)                                           once per time: ``at_time``
    film = FiLM(mish(c + e))                               once per evaluation
    h = project_in(x)
    h = down_i(h), kept as skip_i                          i = 1 .. stages
    h = mid(h)
    h = up_i([h, skip_i])                                  i = stages .. 1
    v = project_out(h)
    block(x) = shortcut(x) + linear(mish((1 + scale) * layernorm(linear(x)) + shift))

Paper: "U-Net", block dimensions (1024, 1024, 1024), one block per stage, additive conditioning. The
paper is silent on what a block is; deviations are marked below.

Modules are un-batched. With ``linear_mix`` there is no activation after the sum, so FiLM is linear
in its parts: FiLM(c + embed(t)) = FiLM(c) + FiLM(embed(t)), and the first term is computed once per
ODE solve, the second once per ODE time for all samples.

Layers compute in the dtype of their weights, norms and activations in at least 32 bits;
``hidden_as`` makes a copy whose inner layers are in 16 bits.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jumpyworld.nn.embed import ContextEncoder, DiscountEmbedding, GammaEmbed, TimeEmbedding
from jumpyworld.nn.mlp import Linear, at_least_float32, mish

Skip = Literal["concat", "add"]
# What ``prepare`` returns: [width], or with ``linear_mix`` [films, 2, width].
Prepared = Float[Array, "..."]


def layer_norm(x: Float[Array, " width"], eps: float = 1e-5) -> Float[Array, " width"]:
    """Return x with mean 0 and variance 1 over its entries; FiLM is the affine part."""
    x = at_least_float32(x)
    centred = x - jnp.mean(x)
    return centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred)) + eps)


class FiLMBlock(eqx.Module):
    """Residual block whose LayerNorm takes its scale and shift from the conditioning.

    Deviation: the paper does not say what a block holds; ours is two linear maps around one (or,
    with two FiLMs, two) modulated LayerNorm and mish, plus a shortcut.

    Attributes:
        linear1: [inputs] -> [width]; where the widths differ -> [2 width], of which the second
            half is the shortcut: one product instead of two.
        linear2: [width] -> [width].
    """

    linear1: Linear
    linear2: Linear

    def __init__(self, inputs: int, width: int, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 2)
        outputs = width if inputs == width else 2 * width
        self.linear1 = Linear(inputs, outputs, key=keys[0])
        self.linear2 = Linear(width, width, key=keys[1])

    def __call__(
        self, x: Float[Array, " inputs"], film: Float[Array, "films 2 width"]
    ) -> Float[Array, " width"]:
        """Apply the block; ``film`` holds (scale, shift) of its one or two FiLMs."""
        width = self.linear2.weight.shape[0]
        h = self.linear1(x)
        h, shortcut = (h, x) if h.shape[0] == width else (h[:width], h[width:])
        h = self.linear2(_modulate(h, film[0]))
        if film.shape[0] == 2:
            h = _modulate(h, film[1]).astype(shortcut.dtype)
        return h + shortcut


def _modulate(h: Float[Array, " width"], film: Float[Array, "2 width"]) -> Float[Array, " width"]:
    scale, shift = at_least_float32(film)
    return mish(layer_norm(h) * (1.0 + scale) + shift)


class FiLMUNet(eqx.Module):
    """U-Net over a vector: ``stages`` blocks down, one in the middle, ``stages`` up, with skips.

    All FiLM layers are one linear map of the conditioning, so that they are one large product.

    Attributes:
        project_in: [inputs] -> [width].
        down, mid, up: the blocks.
        film: conditioning [width] -> scales and shifts of all blocks.
        project_out: [width] -> [outputs], zero at initialisation.
        skip: how an up block takes its skip, ``concat`` or ``add``.
        films_per_block: 1 or 2.
    """

    project_in: Linear
    down: tuple[FiLMBlock, ...]
    mid: FiLMBlock
    up: tuple[FiLMBlock, ...]
    film: Linear
    project_out: Linear
    skip: Skip = eqx.field(static=True)
    films_per_block: int = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        outputs: int,
        width: int,
        stages: int,
        *,
        skip: Skip = "concat",
        films_per_block: int = 1,
        key: PRNGKeyArray,
    ):
        keys = jax.random.split(key, 2 * stages + 4)
        joined = 2 * width if skip == "concat" else width
        blocks = 2 * stages + 1
        self.project_in = Linear(inputs, width, key=keys[0])
        self.down = tuple(FiLMBlock(width, width, key=keys[1 + i]) for i in range(stages))
        self.mid = FiLMBlock(width, width, key=keys[1 + stages])
        self.up = tuple(FiLMBlock(joined, width, key=keys[2 + stages + i]) for i in range(stages))
        self.film = Linear(width, blocks * films_per_block * 2 * width, key=keys[-2])
        self.project_out = Linear(width, outputs, key=keys[-1], gain=0.0)
        self.skip = skip
        self.films_per_block = films_per_block

    def film_parameters(self, c: Float[Array, " width"]) -> Float[Array, "films 2 width"]:
        """Return the scales and shifts of all blocks for one conditioning vector."""
        return self.film(c).reshape(-1, 2, self.film.weight.shape[0])

    def film_increment(self, c: Float[Array, " width"]) -> Float[Array, "films 2 width"]:
        """Return what adding ``c`` to the conditioning adds to ``film_parameters``."""
        return (c @ self.film.weight).reshape(-1, 2, self.film.weight.shape[0])

    def __call__(
        self, x: Float[Array, " inputs"], film: Float[Array, "films 2 width"]
    ) -> Float[Array, " outputs"]:
        """Map one input [inputs] to [outputs] under the given FiLM parameters."""
        film = film.reshape(-1, self.films_per_block, *film.shape[1:])
        stages = len(self.down)
        h = self.project_in(x).astype(self.mid.linear1.weight.dtype)
        skips = []
        for i, block in enumerate(self.down):
            h = block(h, film[i])
            skips.append(h)
        h = self.mid(h, film[stages])
        for i, block in enumerate(self.up):
            s = skips.pop()
            h = block(jnp.concatenate([h, s]) if self.skip == "concat" else h + s, film[-1 - i])
        return self.project_out(h)


class FieldNetwork(eqx.Module):
    """A velocity field v_t(x | s, a, z, gamma), with its conditioning split in two.

    ``prepare`` does what depends on (s, a, z, gamma), once per ODE solve; a call does what depends
    on (x, t). Inputs are standardised; units and frames are the caller's business.

    Attributes:
        encoder: of (s, a, z), with the tokens.
        time: embedding of t.
        discount: embedding of gamma, or None for a model without one.
        unet: the network over x.
        linear_mix: no activation after the conditioning sum.
    """

    encoder: ContextEncoder
    time: TimeEmbedding
    discount: DiscountEmbedding | None
    unet: FiLMUNet
    linear_mix: bool = eqx.field(static=True)

    def __init__(
        self,
        *,
        inputs: int,
        state_dim: int,
        action_dim: int,
        z_dim: int,
        width: int,
        stages: int,
        embed_dim: int,
        embed_scale: float,
        use_discount: bool = True,
        gamma_embed: GammaEmbed = "gamma",
        skip: Skip = "concat",
        films_per_block: int = 1,
        linear_mix: bool = False,
        key: PRNGKeyArray,
    ):
        """Build the network.

        Args:
            inputs: width of what stands for x: d, or more where a frame adds features.
            state_dim: d, also the width of the output.
            action_dim: da.
            z_dim: dz; 0 for a model without z and tokens.
            width: of every hidden layer.
            stages: blocks on the way down, and on the way up.
            embed_dim: sinusoid features of t and of gamma.
            embed_scale: factor before the sinusoids.
            use_discount: False for a model without gamma.
            gamma_embed: what gamma's sinusoid sees.
            skip: ``concat`` or ``add``.
            films_per_block: 1 or 2.
            linear_mix: no activation after the conditioning sum.
            key: randomness.
        """
        keys = jax.random.split(key, 4)
        embed = {"size": embed_dim, "scale": embed_scale}
        self.encoder = ContextEncoder(state_dim, action_dim, z_dim, width, key=keys[0])
        self.time = TimeEmbedding(width, **embed, key=keys[1])
        self.discount = None
        if use_discount:
            self.discount = DiscountEmbedding(width, **embed, kind=gamma_embed, key=keys[2])
        self.unet = FiLMUNet(
            inputs,
            state_dim,
            width,
            stages,
            skip=skip,
            films_per_block=films_per_block,
            key=keys[3],
        )
        self.linear_mix = linear_mix

    def prepare(self, first: Float[Array, " width"], gamma: Float[Array, ""] | None) -> Prepared:
        """Return the part of the conditioning that does not depend on x and t.

        Args:
            first: ``encoder.first(s, a, z)`` [width].
            gamma: discount, or None for a model without one.
        """
        c = self.encoder.finish(first)
        if self.discount is not None and gamma is not None:
            c = c + self.discount(gamma)
        return self.unet.film_parameters(c) if self.linear_mix else c

    def at_time(self, t: Float[Array, ""]) -> Prepared:
        """Return the part of the conditioning that depends on the time alone."""
        time = self.time(t)
        return self.unet.film_increment(time) if self.linear_mix else time

    def __call__(
        self, x: Float[Array, " inputs"], time: Prepared, prepared: Prepared
    ) -> Float[Array, " d"]:
        """Return the field's output at one point [inputs].

        Args:
            x: the point.
            time: ``at_time(t)``.
            prepared: ``prepare(first, gamma)``.
        """
        mixed = prepared + time
        film = mixed if self.linear_mix else self.unet.film_parameters(mish(mixed))
        return self.unet(x, film)


def hidden_as(field: FieldNetwork, dtype) -> FieldNetwork:
    """Return the network with its inner layers in ``dtype`` and its first and last as they are.

    States and points enter, and velocities leave, in full precision: with 8 bits a place in a maze
    of 40 steps is a step wide. These layers are narrow and cost little.
    """

    def edges(f: FieldNetwork):
        e = f.encoder
        first = (e.state, e.action, e.z, e.action_token, e.z_token)
        return (*first, f.unet.project_in, f.unet.project_out)

    inner = jax.tree.map(lambda weight: weight.astype(dtype), field)
    return eqx.tree_at(edges, inner, edges(field), is_leaf=lambda node: node is None)
