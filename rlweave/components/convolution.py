"""Convolutions over images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlweave import ops
from rlweave.components.initializers import InitializerSpec, make_initializer
from rlweave.components.layers import FUSED, apply_activation, checked_activation, float_features
from rlweave.components.leaf_encoding import channels_last
from rlweave.errors import BuildError, SpecError, nearest
from rlweave.graph import Component, graph_fn, register
from rlweave.spaces.box import LAYOUTS

_PADDINGS = ("valid", "same")


@register("conv2d")
class Conv2D(Component):
    """A two-dimensional convolution (cross-correlation) with bias and activation; channels come out last.

    All leading ranks are folded into one for the convolution and unfolded after it.

    Args:
        filters: Number of output channels.
        kernel_size: Height and width of the kernel, or one number for both.
        stride: Step over rows and columns, or one number for both.
        padding: "valid" (none) or "same" (output size = ceil(input size / stride)).
        activation: Name in `ACTIVATIONS`, or None.
        kernel_initializer: As of `Dense`; fan_in counts the kernel's area.
        bias_initializer: Likewise for the bias.
        use_bias: False leaves the bias out.
        layout: Layout of the inputs, "channels_last" or "channels_first" (these are transposed, once). None: as the
            inputs' space declares, and channels last where it declares nothing, as after another layer.
        activation_parameters: Parameters of the activation by name.
        scope: Name within the owner.

    Raises:
        SpecError: An unknown activation, padding, layout or initializer; names the nearest right one.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: str = "valid",
        activation: str | None = None,
        kernel_initializer: InitializerSpec = None,
        bias_initializer: InitializerSpec = 0.0,
        use_bias: bool = True,
        layout: str | None = None,
        activation_parameters: Mapping[str, Any] | None = None,
        scope: str = "conv2d",
    ) -> None:
        super().__init__(scope)
        self.filters = _pair("filters", filters, scope)[0]
        self.kernel_size, self.stride = _pair("kernel_size", kernel_size, scope), _pair("stride", stride, scope)
        if padding not in _PADDINGS:
            fix = nearest(str(padding), _PADDINGS)
            raise SpecError("unknown padding", where=scope, received=repr(padding), fix=fix)
        if layout is not None and layout not in LAYOUTS:
            raise SpecError("unknown layout", where=scope, received=repr(layout), fix=nearest(str(layout), LAYOUTS))
        self.padding, self.layout, self.use_bias = padding, layout, use_bias
        self.activation, self.activation_parameters = checked_activation(activation, activation_parameters, scope)
        make_initializer(kernel_initializer)  # errors belong to the line that makes the layer
        make_initializer(bias_initializer)
        self.kernel_initializer, self.bias_initializer = kernel_initializer, bias_initializer

    def create_variables(self, inputs: Any) -> None:
        """Kernel (kernel height, kernel width, C, filters) and bias (filters,)."""
        space = float_features(inputs, self.path)
        if len(space.shape) != 3:
            raise BuildError(
                "a convolution needs images with three feature axes",
                where=self.path,
                received=repr(space),
                fix="give the space the shape (height, width, channels) and its layout",
            )
        self.input_layout = self.layout or space.layout or "channels_last"
        *size, channels = space.feature_shape if self.input_layout == "channels_last" else _last(space.feature_shape)
        if self.padding == "valid" and any(k > s for k, s in zip(self.kernel_size, size, strict=True)):
            raise BuildError(
                "the kernel is larger than the image",
                where=self.path,
                received=f"kernel {self.kernel_size}, image {tuple(size)} of {space!r} ({self.input_layout})",
                fix="a smaller kernel, padding='same', or the right layout in the space",
            )
        initializer = make_initializer(self.kernel_initializer, self.activation)
        # in memory filters first: torch would copy the kernel into that order at every call
        shape = (*self.kernel_size, channels, self.filters)
        self.kernel = self.variable("kernel", shape, initializer, axis_order=(3, 0, 1, 2))
        if self.use_bias:
            self.bias = self.variable("bias", (self.filters,), make_initializer(self.bias_initializer))

    @graph_fn
    def call(self, inputs: Any) -> Any:
        """Applies the layer.

        Args:
            inputs: Float images, (..., H, W, C), or (..., C, H, W) where the layout says so.

        Returns:
            (..., H', W', filters).
        """
        images = inputs if self.input_layout == "channels_last" else channels_last(inputs, self.input_layout)
        bias = self.bias.value if self.use_bias else None
        if images.ndim == 4:
            return self._convolved(images, bias)
        leading = tuple(images.shape[:-3])
        return ops.unfold_ranks(self._convolved(ops.fold_ranks(images, len(leading)), bias), leading)

    def _convolved(self, images: Any, bias: Any) -> Any:
        if self.activation in FUSED:
            return ops.conv2d(images, self.kernel.value, self.stride, self.padding, bias, self.activation)
        outputs = ops.conv2d(images, self.kernel.value, self.stride, self.padding, bias)
        return apply_activation(outputs, self.activation, self.activation_parameters)


def _pair(name: str, value: Any, where: str) -> tuple[int, int]:
    numbers = (value, value) if isinstance(value, int) else tuple(value) if isinstance(value, Sequence) else ()
    if len(numbers) != 2 or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in numbers):
        raise SpecError(
            f"{name} of a convolution must be a whole number of at least 1",
            where=where,
            received=f"{name}={value!r}",
            fix="one number" if name == "filters" else "one number, or (rows, columns)",
        )
    return numbers[0], numbers[1]


def _last(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[1:], shape[0])
