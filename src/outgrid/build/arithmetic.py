"""Whether a compiler computes what a kernel says: it is asked, with the flags that it is going to get.

A list of flags to look for in a command would miss those of wrappers, response files, settings of
the environment and defaults. So the compiler tells which macros it defines, and its driver which
words it hands on to the compiler proper and to the linker.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from outgrid.errors import BuildError

REORDERS = "allows operations to be reordered, merged and removed"
SUMS = "allows sums and products to be reordered"
APPROXIMATES = "replaces divisions and functions by approximations"
FINITE = "assumes that NaN and infinity do not occur"
ZEROS = "takes -0 for 0"
DENORMALS = "takes denormal numbers for 0"
PRECISION = "computes in another precision"
WORDS = (  # those that people write come first
    (r"-Ofast|-ffast-math|-ff?p-model=(fast|aggressive).*", REORDERS),
    (r"-funsafe-math-optimizations", REORDERS),
    (r"-fassociative-math", SUMS),
    (r"-freciprocal-math|-mrecip(=(?!none$).*)?|-fapprox-func", APPROXIMATES),
    (r"-ffinite-math-only|-fno-honor-(nans|infinities)|-menable-no-(nans|infs)", FINITE),
    (r"-fno-signed-zeros", ZEROS),
    (r"-fsingle-precision-constant", "rounds constants to single precision"),
    (r"-fdenormal-fp-math(-f32)?=(?!ieee).*|-mdaz-ftz|.*\bcrtfastmath\b.*", DENORMALS),
    (r"-ffp-eval-method=(?!source).*|-mfpmath=(?!sse$).*", PRECISION),
    (r"-menable-unsafe-fp-math", REORDERS),
    (r"-mreassociate", SUMS),
)
# A macro that is not defined, or has one of these values, means arithmetic as it is written.
MACROS = (
    ("__FAST_MATH__", ("0",), REORDERS),
    ("__ASSOCIATIVE_MATH__", ("0",), SUMS),
    ("__RECIPROCAL_MATH__", ("0",), APPROXIMATES),
    ("__FINITE_MATH_ONLY__", ("0",), FINITE),
    ("__NO_SIGNED_ZEROS__", ("0",), ZEROS),
    ("__FLT_EVAL_METHOD__", ("0", "16"), PRECISION),
)
CONTRACT = "-ffp-contract="
WORDS_ONLY = "-###"
COMPILER_PROPER = ' "-cc1" '


def check_arithmetic(command: Sequence[str], flags: Sequence[str]) -> None:
    """Raise BuildError where the compiler would change what operations come to, or cannot tell.

    ``command`` is the compiler as it was named, ``flags`` what follows.
    """
    deviation = _deviation(tuple(command), tuple(flags))
    if deviation is not None:
        name, effect = deviation
        fix = "take it out of $CXX"
        if name not in command:
            fix = (
                "$CXX does not name it, so a file of options, a wrapper or a default does: turn it "
                "off (icpx: -fp-model=precise)"
            )
        raise BuildError(
            f"{shlex.join(command)} would change results: {name} {effect}, and kernels compute "
            f"what is written; {fix}"
        )


@cache
def _deviation(command: tuple[str, ...], flags: tuple[str, ...]) -> tuple[str, str] | None:
    """The flag by which results change, and how; a macro where no flag is known."""
    macros = _macros(command, flags)
    words = list(_handed_on(_asked(command, (*flags, WORDS_ONLY, "-x", "c++", "/dev/null")).stderr))
    deviations = [*_in_words(words), *_in_macros(macros)]
    if not deviations:
        return None
    return next(_in_words(command), deviations[0])


def defined(command: Sequence[str], flags: Sequence[str], macros: Iterable[str]) -> set[str]:
    """Those of some macros that the compiler defines. Raises BuildError where it cannot tell."""
    told = _macros((*command,), (*flags,))
    return {macro for macro in macros if f"#define {macro} " in told}


@cache
def _macros(command: tuple[str, ...], flags: tuple[str, ...]) -> str:
    return _asked(command, (*flags, "-dM", "-E", "-x", "c++", "/dev/null")).stdout


def _asked(command: tuple[str, ...], what: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*command, *what], capture_output=True, text=True, errors="replace")
    # zig tells what it hands on, and then fails for want of the file that it did not make.
    if done.returncode != 0 and not (WORDS_ONLY in what and COMPILER_PROPER in done.stderr):
        raise BuildError(
            f"{shlex.join(command)} does not say how it computes, so results might change: "
            f"{shlex.join(what[-5:])} failed with exit code {done.returncode}; name g++ or clang++ "
            f"in $CXX\n{done.stderr.strip()}",
            command=(*command, *what),
        )
    return done


def _handed_on(told: str) -> Iterator[str]:
    """The words of all commands that a driver would run; of those on contraction the last one."""
    for line in told.splitlines():
        if line.startswith(" "):
            words = shlex.split(line)
            contracting = [word for word in words if word.startswith(CONTRACT)]
            yield from (word for word in words if not word.startswith(CONTRACT))
            yield from contracting[-1:]


def _in_words(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for pattern, effect in WORDS:
        yield from ((word, effect) for word in words if re.fullmatch(pattern, word))
    for word in words:
        if word.startswith(CONTRACT) and word != f"{CONTRACT}off":
            yield word, "fuses operations that the kernel keeps apart"


def _in_macros(told: str) -> Iterator[tuple[str, str]]:
    defined = dict(re.findall(r"^#define (\w+) (.*)$", told, re.MULTILINE))
    for name, harmless, effect in MACROS:
        value = defined.get(name, harmless[0]).strip()
        if value not in harmless:
            yield f"{name} {value}", effect
