"""JSON documents, safetensors and ``.npy`` files: exact round trips, and nothing damaged is taken for content."""

import contextlib
import json
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import secret_rl as srl
from secret_rl import files
from secret_rl.files import FileFormat, FileFormatError, ResumeError, check_same, crc32_of, plain

FORMAT = FileFormat("a test", remedy="write it again")
DTYPES = ["?", "u1", "i1", "<u2", "<i2", "<f2", "<u4", "<i4", "<f4", "<u8", "<i8", "<f8"]
OURS = ("format", "version", "library", "crc32", "arrays")

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
documents = st.dictionaries(st.text().filter(lambda key: key not in OURS), values, max_size=5)
any_arrays = st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0)))
lying_apart = any_arrays.flatmap(  # in memory, as transposed, repeated and reversed arrays do
    lambda array: st.sampled_from([array.T, np.broadcast_to(array, (2, *array.shape)), np.asarray(np.flip(array))])
)
names = st.text().filter(lambda name: name != "__metadata__")
named_arrays = st.dictionaries(names, any_arrays | lying_apart, max_size=4)


def same_arrays(mine, theirs):
    return mine.keys() == theirs.keys() and all(
        (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
        for a, b in ((mine[name], theirs[name]) for name in mine)
    )


def safetensors_bytes(header, data=b""):
    """A safetensors file of any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@given(documents)
def test_json_comes_back_as_it_was(tmp_path, content):
    path = FORMAT.write_json(tmp_path / "deep" / "a.json", content)
    assert repr(FORMAT.read_json(path)) == repr(content), "1, 1.0 and True stay what they are, and so does the order"
    assert [file.name for file in path.parent.iterdir()] == ["a.json"]
    document = json.loads(path.read_bytes())
    assert (document["format"], document["version"], document["library"]) == ("a test", 1, srl.__version__)


@given(documents, named_arrays)
@example({}, {"a": np.array(3.5), "b": np.zeros((0, 3)), "": np.zeros((2, 0), "?"), 'é\0\n"': np.arange(3, dtype="u1")})
def test_arrays_come_back_as_they_were_and_the_safetensors_library_reads_them(tmp_path, about, arrays):
    path = FORMAT.write_arrays(tmp_path / "a.safetensors", about, arrays, finite=False)
    stated, found = FORMAT.read_arrays(path)
    assert repr(stated) == repr(about) and same_arrays(found, arrays)
    assert list(tmp_path.iterdir()) == [path]
    for array in found.values():
        array[...] = 1
    assert same_arrays(load_file(path), arrays)
    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
    save_file(load_file(path), path, metadata=metadata)
    stated, found = FORMAT.read_arrays(path)
    assert stated == about and same_arrays(found, arrays)
    save_file(found, path)
    with pytest.raises(FileFormatError, match="a.safetensors cannot be read as 'a test': .* of something else; write"):
        FORMAT.read_arrays(path)


def test_other_formats_and_versions_are_named(tmp_path):
    one, two = FileFormat("one"), FileFormat("two", remedy="do it again")
    newer = f"it has format version 3, this library reads 1: open it with secret-rl {srl.__version__}"
    for write, read, given_ in (
        (FileFormat.write_json, FileFormat.read_json, ({},)),
        (FileFormat.write_arrays, FileFormat.read_arrays, ({}, {"x": np.zeros(2)})),
    ):
        for kind, reason in ((one, "it says format 'one', expected 'two'"), (FileFormat("two", version=3), newer)):
            path = write(kind, tmp_path / "file", *given_)
            with pytest.raises(FileFormatError) as refused:
                read(two, path)
            assert str(refused.value) == f"{path} cannot be read as 'two': {reason}; do it again"
        with pytest.raises(FileNotFoundError):
            read(two, tmp_path / "nothing")
        with pytest.raises(OSError):
            read(two, tmp_path)


def test_interrupts_and_errors_of_the_system_pass(tmp_path):
    for error in (KeyboardInterrupt(), OSError("disk"), FileFormatError("known"), ResumeError("known")):
        with pytest.raises(type(error)) as raised, FORMAT.reading(tmp_path):
            raise error
        assert raised.value is error
    for error in (MemoryError(), RecursionError("deep"), KeyError("x"), ValueError("bad"), AssertionError()):
        with pytest.raises(FileFormatError, match="'a test'.*; write it again") as raised, FORMAT.reading(tmp_path):
            raise error
        assert raised.value.__cause__ is error


def test_every_bit_and_every_cut(tmp_path):
    about, arrays = {"a": [1, 2.5, "x", None]}, {"b": np.arange(3.0), "c": np.array([True]), "d": np.zeros((0, 2))}
    for path, read in (
        (FORMAT.write_json(tmp_path / "a.json", about), lambda path: (FORMAT.read_json(path), arrays)),
        (FORMAT.write_arrays(tmp_path / "a.safetensors", about, arrays), FORMAT.read_arrays),
    ):
        intact = path.read_bytes()
        for at in range(len(intact)):
            for bit in (0, 5, 7):
                path.write_bytes(intact[:at] + bytes([intact[at] ^ 1 << bit]) + intact[at + 1 :])
                with contextlib.suppress(FileFormatError):
                    found = read(path)
                    assert repr(found[0]) == repr(about) and same_arrays(found[1], arrays)
                    assert intact[at : at + 1].isspace(), "only space between values means nothing"
            if intact[at:].strip():
                path.write_bytes(intact[:at])
                with pytest.raises(FileFormatError, match=r"cannot be read as 'a test': .*; write it again"):
                    read(path)


def test_what_was_changed_is_named(tmp_path):
    path = FORMAT.write_arrays(tmp_path / "a", {}, {"first": np.zeros(2), "second": np.ones(2)})
    intact = path.read_bytes()
    for damaged, message in (
        (intact[:-1] + b"\0", "second does not match its checksum"),
        (intact.replace(b'"F64"', b'"I64"', 1), "first does not match its checksum"),
        (intact.replace(b'"first": {', b'"third": {', 1), r"the arrays \['second', 'third'\], expected \['first'"),
        (intact + b"\0", "SafetensorError"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError, match=message):
            FORMAT.read_arrays(path)


any_json = values.map(lambda content: json.dumps(content).encode())


@settings(max_examples=300)
@given(st.binary() | any_json | (st.binary(max_size=40) | any_json).map(lambda text: safetensors_bytes(text, b"data")))
@example(pickle.dumps({"format": "a test"}))
@example(b"[" * 100_000)
@example(b'{"format": "a test", "version": 1, "crc32": 0, "x": NaN}')
@example(b'{"format": "a test", "version": 1, "crc32": 0, "x": "\\ud800"}')
@example(b"1" * 10_000)
@example(b"\xff" * 8)
@example(safetensors_bytes(b"[" * 100_000))
@example(safetensors_bytes({"__metadata__": {"secret_rl": "[" * 100_000}}))
def test_any_bytes_and_any_json_are_refused_by_the_one_class(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    for read in (FORMAT.read_json, FORMAT.read_arrays):
        with pytest.raises(FileFormatError):
            read(tmp_path / "a")


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F64", "shape": [10**9], "data_offsets": [0, 8 * 10**9]},
        {"dtype": "F64", "shape": [2**31 - 1] * 4, "data_offsets": [0, 8]},
        {"dtype": "BOOL", "shape": [0, 10**9], "data_offsets": [0, 10**9]},
    ],
)
def test_sizes_beyond_the_file_take_no_memory(tmp_path, entry):
    """Whatever checksum they come with: this one fits, and nothing else does."""
    about = FORMAT._signed({"arrays": {"x": 0}})
    (tmp_path / "a").write_bytes(
        safetensors_bytes({"__metadata__": {"secret_rl": json.dumps(about)}, "x": entry}, bytes(8))
    )
    tracemalloc.start()
    try:
        with pytest.raises(FileFormatError, match="SafetensorError"):
            FORMAT.read_arrays(tmp_path / "a")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


circle: list = []
circle.append(circle)


@pytest.mark.parametrize(
    ("about", "array", "error", "message"),
    [
        *((bad, 0, ValueError, "cannot write a test: .*; meta and options must be JSON values") for bad in (
            float("nan"), object(), b"x", np.zeros(2), np.int64(1), "\ud800", 10**5000, circle, {(1, 2): 3}
        )),
        (0, np.array([1.0, np.nan]), ValueError, "bad holds NaN or infinite numbers: .*a.safetensors is not written"),
        (0, np.array([np.inf], np.float16), ValueError, "bad holds NaN or infinite numbers"),
        (0, np.array([object()]), TypeError, "bad of dtype object cannot be in .*: expected numbers or bools"),
        (0, np.array(["text"]), TypeError, "bad of dtype <U4"),
        (0, np.array([1j]), TypeError, "bad of dtype complex128"),
    ],
    ids=lambda bad: type(bad).__name__,
)  # fmt: skip
def test_what_cannot_be_written_leaves_the_old_file(tmp_path, about, array, error, message):
    document = FORMAT.write_json(tmp_path / "a.json", {"old": 1})
    arrays = FORMAT.write_arrays(tmp_path / "a.safetensors", {"old": 1}, {"x": np.ones(2)})
    before = document.read_bytes(), arrays.read_bytes()
    with pytest.raises(error, match=message):
        FORMAT.write_arrays(arrays, {"x": about}, {"a good one": np.zeros(3), "bad": array})
    if error is ValueError and isinstance(array, int):
        with pytest.raises(error, match=message):
            FORMAT.write_json(document, {"x": [{"y": about}]})
    assert (document.read_bytes(), arrays.read_bytes()) == before
    assert sorted(tmp_path.iterdir()) == [document, arrays]


@given(hnp.arrays(st.sampled_from(DTYPES), hnp.array_shapes(max_dims=3, min_side=0)), st.integers(0, 5))
def test_npy_files_grow_by_rows_and_resume(tmp_path, rows, split):
    """Rows in two parts, with an interruption between them: numpy reads the file, and so do we."""
    first, second = rows[:split], rows[split:]
    writer = files.NpyWriter(tmp_path / "x.npy", rows.dtype, rows.shape[1:])
    writer.append(first)
    entry = writer.entry()
    writer.append(rows)  # lost by the interruption
    writer.close()
    writer = files.NpyWriter.resume(tmp_path, entry)
    writer.flush()
    assert same_arrays({"": files.map_npy(tmp_path, entry)}, {"": first})
    writer.append(second)
    writer.complete()
    for found in (np.load(tmp_path / "x.npy"), files.map_npy(tmp_path, writer.entry())):
        assert same_arrays({"": found}, {"": rows})
    assert writer.entry()["crc32"] == crc32_of(rows)


def test_npy_files_take_rows_that_fit(tmp_path):
    with contextlib.closing(files.NpyWriter(tmp_path / "x.npy", np.dtype("i1"), (2,))) as writer:
        writer.append(np.ones((1, 2), np.int64))
        with pytest.raises(ValueError, match=r"x has rows of shape \(3,\), expected \(2,\)"):
            writer.append(np.ones((1, 3), np.int8))
        with pytest.raises(ValueError, match="x came as int64 values that do not fit int8"):
            writer.append(np.full((1, 2), 300))


def test_npy_files_outside_of_their_folder_are_refused(tmp_path):
    """Damaged ones, too: tests of trajectory stores."""
    writer = files.NpyWriter(tmp_path / "x.npy", np.dtype("i1"), ())
    writer.append(np.arange(9, dtype="i1"))
    writer.complete()
    (tmp_path / "in").mkdir()
    for outside in ("../x.npy", str(tmp_path / "x.npy")):
        entry = writer.entry() | {"file": outside}
        with pytest.raises(ValueError, match="outside the folder: refused"):
            files.map_npy(tmp_path / "in", entry)
        with pytest.raises(FileNotFoundError):
            files.NpyWriter.resume(tmp_path / "in", entry)


def test_what_differs_is_named_and_short(tmp_path):
    check_same(tmp_path, "a fit", {"a": 1, "gone": None}, {"a": 1})
    for was, now, message in (
        ({"seed": 1, "same": [1], "gone": "x"}, {"seed": 2, "same": [1], "new": None},
         r"a fit with another gone, seed \(gone was 'x', now None; seed was 1, now 2\): repeat that call"),
        ({"a": "\x1b[31m" + "x" * 10_000}, {"a": 1}, "choose another path, or delete it"),
    ):  # fmt: skip
        with pytest.raises(ResumeError, match=message) as refused:
            check_same(tmp_path, "a fit", was, now)
        assert "\x1b" not in str(refused.value) and len(str(refused.value)) < 600 + len(str(tmp_path))


@given(st.recursive(values | st.floats() | st.binary() | st.tuples(st.integers()), st.lists, max_leaves=5))
def test_plain_values_can_be_written(tmp_path, value):
    content = {"x": plain(value)}
    assert FORMAT.read_json(FORMAT.write_json(tmp_path / "a", content)) == content
