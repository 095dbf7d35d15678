"""Four neighbouring numbers at once, as one vector register holds them: Numba has no words for that, LLVM has."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_INT, _NUMBERS = ir.IntType(32), ir.VectorType(ir.DoubleType(), 4)


def _highest_of_four(typing_context: Any, values: Any, at: Any) -> Any:  # noqa: ARG001
    """The highest of ``values[at : at + 4]``, and a mask: bit k is set where ``values[at + k]`` is as high."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.gep(array.data, [arguments[1]])
        four = builder.load(builder.bitcast(place, _NUMBERS.as_pointer()), align=8)

        def higher(numbers: Any, order: list[int]) -> Any:
            """Of each number and the one that takes its place in that order."""
            places = ir.Constant(ir.VectorType(_INT, 4), [ir.Constant(_INT, k) for k in order])
            others = builder.shuffle_vector(numbers, ir.Constant(_NUMBERS, ir.Undefined), places)
            return builder.select(builder.fcmp_ordered(">", numbers, others), numbers, others)

        highest = higher(higher(four, [2, 3, 0, 1]), [1, 0, 3, 2])  # in all four places
        bits = builder.bitcast(builder.fcmp_ordered(">=", four, highest), ir.IntType(4))
        results = builder.extract_element(highest, ir.Constant(_INT, 0)), builder.zext(bits, ir.IntType(64))
        return context.make_tuple(builder, signature.return_type, results)

    return types.Tuple((types.float64, types.uint64))(values, at), generate


highest_of_four: Any = intrinsic(_highest_of_four)
