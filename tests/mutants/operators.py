"""Where a source file can be made wrong, and how: the operators of the sampled mutants.

Each operator replaces one stretch of the source by another text, so that everything else stays as written.
Annotations, docstrings, asserts, imports, and what is inside an f-string are left alone; a text is changed in
one way only: a value that the function was given is shown in it (`message widened`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import NamedTuple

_COMPARE = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_ARITHMETIC = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Pow: "*",
    ast.Mod: "+", ast.LShift: ">>", ast.RShift: "<<", ast.BitAnd: "|", ast.BitOr: "&", ast.BitXor: "|",
}  # fmt: skip
_CLIP = re.compile(r"clip|clamp|^cap|trunc|shrink|^(np_)?(min|max)(imum)?$|or_zero")
_FACTOR = re.compile(
    r"clip|bound(?!ed)|sensitivity|sigma|scale|radius|norm|weight|(^|_)(sd|mu|epsilon|delta|step)$"
)
_ROWS = re.compile(
    r"ratings|rows?$|matrix|values?$|array|block|column|series|frame|cells?$|texts?$|labels|users?$|scores"
    r"|sums?$|bounded|contribution|message|content|payload|raw|ids$|indices|data$|line$|names$|exact|total"
)
_CHARGE = re.compile(r"charge|check|reserve|commit|fsync|spend|verify|valid|require|refuse|close|sign")
_SHOWN = re.compile(r"print|write|warn|info|debug|^say|echo|Error$|Warning$|Exit$")


class Site(NamedTuple):
    """One mutant: bytes ``begin`` to ``end`` of a file are replaced by ``text``.

    Lines ``first`` (from 0) to ``last`` hold the innermost function; 0 and 0 outside of functions.
    """

    path: str
    function: str
    line: int
    operator: str
    begin: int
    end: int
    text: str
    compiled: bool
    first: int
    last: int


def sites(path: str, source: str) -> list[Site]:
    """All that the operators make of a file, in the order of the source."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return finder.found


def mutated(source: str, site: Site) -> str:
    """The source with one mutant in it."""
    raw = source.encode()
    return (raw[: site.begin] + site.text.encode() + raw[site.end :]).decode()


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: str) -> None:
        self.path, self.raw, self.found = path, source.encode(), list[Site]()
        self.starts = [0]
        for line in self.raw.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.scope: list[ast.AST] = []

    # places and texts

    def _span(self, node: ast.AST) -> tuple[int, int]:
        return (
            self.starts[node.lineno - 1] + node.col_offset,  # type: ignore[attr-defined]
            self.starts[node.end_lineno - 1] + node.end_col_offset,  # type: ignore[attr-defined]
        )

    def _text(self, node: ast.AST) -> str:
        begin, end = self._span(node)
        return self.raw[begin:end].decode()

    def _add(self, operator: str, node: ast.AST, text: str, span: tuple[int, int] | None = None) -> None:
        begin, end = span or self._span(node)
        names = [getattr(node, "name", "") for node in self.scope]
        decorators = [d for outer in self.scope for d in getattr(outer, "decorator_list", [])]
        compiled = any(re.search("compiled|inner|njit", ast.unparse(decorator)) for decorator in decorators)
        inner = self.scope[-1] if self.scope else None
        lines = (inner.lineno - 1, inner.end_lineno) if isinstance(inner, ast.FunctionDef) else (0, 0)
        path, line = ".".join(names) or "<module>", node.lineno  # type: ignore[attr-defined]
        self.found.append(Site(self.path, path, line, operator, begin, end, text, compiled, *lines))

    def _between(self, operator: str, left: ast.AST, right: ast.AST, old: str, new: str) -> None:
        begin, end = self._span(left)[1], self._span(right)[0]
        gap = self.raw[begin:end].decode()
        if gap.count(old) == 1:
            self._add(operator, left, gap.replace(old, new), (begin, end))

    def _private(self) -> str | None:
        """A value that the innermost function was given and that may come from rows."""
        function = self.scope[-1] if self.scope else None
        if not isinstance(function, ast.FunctionDef):
            return None
        arguments = (*function.args.args, *function.args.kwonlyargs)
        return next((a.arg for a in arguments if _ROWS.search(a.arg)), None)

    # what is walked through

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.scope.append(node)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self.scope.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.scope.append(node)
        for statement in node.body:
            self.visit(statement)
        self.scope.pop()

    def _leave(self, node: ast.AST) -> None:
        pass

    visit_JoinedStr = visit_Import = visit_ImportFrom = visit_Assert = _leave

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    # the usual operators

    def visit_Compare(self, node: ast.Compare) -> None:
        values = [node.left, *node.comparators]
        for left, right, operator in zip(values, values[1:], node.ops):
            self._between("comparison", left, right, _SIGN[type(operator)], _COMPARE[type(operator)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        text = any(isinstance(n, ast.JoinedStr) or isinstance(getattr(n, "value", 0), (str, bytes))
                   for n in (node.left, node.right))  # fmt: skip
        sign, other = _SIGN.get(type(node.op)), _ARITHMETIC.get(type(node.op))
        if sign and other and not text:
            self._between("arithmetic", node.left, node.right, sign, other)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        sign, other = _SIGN.get(type(node.op)), _ARITHMETIC.get(type(node.op))
        if sign and other:
            self._between("arithmetic", node.target, node.value, f"{sign}=", f"{other}=")
        self._add("statement deleted", node, "pass")
        self.visit(node.value)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:]):
            self._between("boolean", left, right, old, new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, (ast.Not, ast.USub, ast.Invert)):
            operator = "boolean" if isinstance(node.op, ast.Not) else "arithmetic"
            self._add(operator, node, f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._add("constant", node, str(not value))
        elif isinstance(value, int):
            self._add("constant", node, str(value + 1))
        elif value == 0.0 and isinstance(value, float):
            self._add("constant", node, "1.0")
        elif isinstance(value, float):
            self._add("constant times 2", node, f"(2 * {self._text(node)})")

    def _condition(self, test: ast.expr) -> None:
        if ast.unparse(test) != "TYPE_CHECKING":
            self._add("condition", test, "True")
            self._add("condition", test, "False")

    def visit_If(self, node: ast.If) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._add("condition", test, "True")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        name, operator = _called(node.value), "statement deleted"
        if _CLIP.search(name):
            operator = "clip dropped"
        elif _CHARGE.search(name):
            operator = "charge or check skipped"
        self._add(operator, node, "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(not isinstance(target, (ast.Name, ast.Tuple)) for target in node.targets):
            self._add("statement deleted", node, "pass")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and ast.unparse(node.value) != "None":
            self._add("return value", node, "return None")
        self.generic_visit(node)

    # operators for our own kind of bug

    def visit_Raise(self, node: ast.Raise) -> None:
        if "NotImplementedError" not in self._text(node):
            self._add("exception swallowed", node, "pass")
        self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        span = self._span(node.body[0])[0], self._span(node.body[-1])[1]
        if not isinstance(node.body[0], (ast.Raise, ast.Pass)):
            self._add("exception swallowed", node.body[0], "pass", span)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        blocks = self._text(node.iter)
        if _called(node.iter) in ("range", "prange"):
            *start, stop = [self._text(a) for a in node.iter.args[:2]]  # type: ignore[attr-defined]
            first = (*start, f"min({start[0] if start else 0} + 1, {stop})")
            self._add("first block only", node.iter, f"range({', '.join(first)})")
        else:
            self._add("first block only", node.iter, f"list({blocks})[:1]")
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr == "float64":
            self._add("float32 for float64", node, f"{self._text(node.value)}.float32")
        if node.attr == "user_keys":
            rows = f"np.arange(len({self._text(node)}), dtype=np.uint64)"
            self._add("key by row number", node, f"{rows}")
        self._factor(node, node.attr)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self._factor(node, node.id)

    def _factor(self, node: ast.Name | ast.Attribute, name: str) -> None:
        if isinstance(node.ctx, ast.Load) and _FACTOR.search(name):
            factor, operator = ("2", "times 2") if node.lineno % 2 else ("2**0.5", "times sqrt 2")
            self._add(f"constant {operator}", node, f"({factor} * {self._text(node)})")

    def visit_Call(self, node: ast.Call) -> None:
        name, arguments = _called(node), node.args
        if _CLIP.search(name) and arguments and not isinstance(arguments[0], (ast.GeneratorExp, ast.Starred)):
            kept = next((a for a in arguments if not isinstance(a, ast.Constant)), arguments[0])
            if len(arguments) > 1 or not re.match(r"min|max", name):
                self._add("clip dropped", node, f"({self._text(kept)})")
        if name.startswith("release") and len(arguments) > 1 and "gate" in ast.unparse(node.func):
            exact = self._text(arguments[1])
            self._add("exact for noisy", node, f'getattr({exact}, "_values", {exact})')
        if name in ("add_gaussian", "flip") and arguments:
            self._add("exact for noisy", node, f"({self._text(arguments[0])})")
        if name in _RANDOM:
            self._add("key or seed reused", node, _RANDOM[name](*map(self._text, arguments)))
        says = _SHOWN.search(name) and arguments and isinstance(arguments[0], (ast.Constant, ast.JoinedStr))
        if says and self._private():
            shown = f'{self._text(arguments[0])} f" {{{self._private()}!r}}"'
            self._add("message widened", arguments[0], shown)
        if isinstance(node.func, ast.Attribute):
            self.visit(node.func.value)  # a method's name is no constant
        for part in (*arguments, *(keyword.value for keyword in node.keywords)):
            self.visit(part)


_SIGN: dict[type, str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Pow: "**",
    ast.Mod: "%", ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
}  # fmt: skip
_RANDOM: dict[str, Callable[..., str]] = {
    "urandom": lambda size: f"bytes({size})",
    "token_bytes": lambda size: f"bytes({size})",
    "token_hex": lambda size: f'("00" * {size})',
    "token_urlsafe": lambda size: f'("A" * {size})',
    "randbelow": lambda most: f"(1 % {most})",
    "SystemRandom": lambda: '__import__("random").Random(0)',
    "generate": lambda: "from_private_bytes(bytes(32))",
}


def _called(node: ast.AST) -> str:
    """Name of the function or method that is called, or nothing."""
    function = getattr(node, "func", None)
    return getattr(function, "attr", getattr(function, "id", "")) if function is not None else ""
