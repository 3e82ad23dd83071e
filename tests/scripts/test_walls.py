"""scripts/check-walls: which module dependencies are found, and which are rejected."""

from conftest import load

walls = load("check-walls")


def sources(tmp_path, **files):
    for name, text in files.items():
        path = tmp_path / (name.replace("__", "/") + ".rs")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def edges(*names):
    return {tuple(name.split(">")): {"x.rs"} for name in names}


def test_uses_are_found_in_imports_and_in_paths(tmp_path):
    tree = sources(
        tmp_path,
        lib="pub mod a; pub mod b; pub mod c; pub mod d;",
        a__mod="use crate::b::Thing;\nuse crate::{c, d::{self, Other}};\nuse crate::Unknown;",
        b="fn f() { crate::c::g(); }",
        c="use super::d; use crate::c::inner;",
        d="",
    )

    found = walls.module_edges(tree)

    assert found == {
        ("a", "b"): {"a/mod.rs"},
        ("a", "c"): {"a/mod.rs"},
        ("a", "d"): {"a/mod.rs"},
        ("b", "c"): {"b.rs"},
    }


def test_comments_and_unit_tests_do_not_count(tmp_path):
    tree = sources(
        tmp_path,
        a="// see crate::b\n#[cfg(test)]\nmod tests {\n    use crate::c::Helper;\n}\n",
        a__tests="use crate::b;",
        b="",
        c="",
    )

    assert walls.module_edges(tree) == {}


def test_a_chain_has_no_cycle_and_a_loop_has_one():
    assert walls.cycles(edges("a>b", "b>c", "a>c")) == []
    assert walls.cycles(edges("a>b", "b>c", "c>a", "c>d")) == [["a", "b", "c"]]
    assert walls.cycles(edges("a>b", "b>a", "b>c", "c>d", "d>c")) == [["c", "d"], ["a", "b"]]


def test_a_cycle_names_its_uses():
    (problem,) = walls.module_problems(edges("auth>cache", "cache>auth", "auth>clock"))

    assert problem == "cycle of modules auth, cache: auth -> cache (x.rs); cache -> auth (x.rs)"


def test_forbidden_uses_are_named_with_their_files():
    problems = walls.module_problems(edges("api>proxy", "jobs>api", "auth>app", "server>app", "api>app"))

    assert [problem.split(":")[0] for problem in problems] == [
        "api must not use proxy",
        "auth must not use app",
        "jobs must not use api",
    ]
    assert all("(x.rs)" in problem for problem in problems)


def test_a_file_that_no_module_declares_is_found(tmp_path):
    sources = tmp_path / "crates/one/src"
    (sources / "inner").mkdir(parents=True)
    (sources / "lib.rs").write_text("pub mod inner;\n// mod commented;\n")
    (sources / "inner/mod.rs").write_text("mod deep;\n")
    for name in ("inner/deep.rs", "inner/lost.rs", "commented.rs"):
        (sources / name).write_text("")
    found = walls.undeclared(tmp_path)
    assert [problem.rsplit("/", 1)[1] for problem in found] == ["commented.rs", "lost.rs"]
