"""JSON documents and safetensors files: exact round trips, and nothing hostile or damaged is taken for content."""

import contextlib
import json
import pickle
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from tests.sealing import safetensors_bytes, sealed

import secret_rl as srl
from secret_rl import files
from secret_rl.files import FileFormat, FileFormatError, ResumeError, check_same, crc32_of, plain

FORMAT = FileFormat("a test", remedy="write it again")
LARGE = FileFormat("a test", remedy="write it again", large=True)
DTYPES = ["?", "u1", "i1", "<u2", "<i2", "<f2", "<u4", "<i4", "<f4", "<u8", "<i8", "<f8"]
OUTER = ("format", "version", "library", "crc32")

numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
documents = st.dictionaries(st.text().filter(lambda key: key not in OUTER), values, max_size=5)
about_arrays = documents.map(lambda content: {key: value for key, value in content.items() if key != "arrays"})
shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
any_arrays = st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, shapes))
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


@given(documents, st.sampled_from([FORMAT, LARGE]), st.booleans())
def test_json_comes_back_as_it_was(tmp_path, content, kind, sort):
    path = kind.write_json(tmp_path / "deep" / "a.json", content)
    assert repr(kind.read_json(path)) == repr(content), "1, 1.0 and True stay what they are, and so does the order"
    assert [file.name for file in path.parent.iterdir()] == ["a.json"]
    document = json.loads(path.read_bytes())
    assert (document["format"], document["version"], document["library"]) == ("a test", 1, srl.__version__)
    path.write_text(json.dumps(document, indent=7, sort_keys=sort, ensure_ascii=sort), encoding="utf-8")
    assert kind.read_json(path) == content, "the layout of a document does not matter"


@settings(max_examples=150)
@given(about_arrays, named_arrays)
@example({}, {})
@example({}, {"a": np.array(3.5), "b": np.zeros((0, 3)), "": np.zeros((2, 0), "?"), 'é\0\n"': np.arange(3, dtype="u1")})
def test_arrays_come_back_as_they_were(tmp_path, about, arrays):
    path = FORMAT.write_arrays(tmp_path / "a.safetensors", about, arrays, finite=False)
    stated, found = FORMAT.read_arrays(path, finite=False)
    assert repr(stated) == repr(about) and same_arrays(found, arrays)
    assert list(tmp_path.iterdir()) == [path]
    for array in found.values():
        assert array.flags.writeable and array.flags.c_contiguous
        array[...] = 1


@given(any_arrays, st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_checksums_in_pieces_are_checksums(array, piece, before):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_CHUNK", piece)
        assert crc32_of(array, before) == zlib.crc32(array.tobytes(), before)
        assert crc32_of(array.T, before) == zlib.crc32(array.T.tobytes(), before)


@given(about_arrays, named_arrays)
def test_the_safetensors_library_reads_our_files_and_may_write_them_again(tmp_path, about, arrays):
    path = FORMAT.write_arrays(tmp_path / "a.safetensors", about, arrays, finite=False)
    assert same_arrays(load_file(path), arrays)
    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
    save_file(load_file(path), path, metadata=metadata)
    stated, found = FORMAT.read_arrays(path, finite=False)
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
        with pytest.raises(IsADirectoryError):
            read(two, tmp_path)
    assert srl.files.FileFormatError is FileFormatError and srl.files.ResumeError is ResumeError
    assert issubclass(FileFormatError, ValueError) and issubclass(ResumeError, ValueError)


def test_interrupts_and_errors_of_the_system_pass(tmp_path):
    for error in (KeyboardInterrupt(), OSError("disk"), FileFormatError("known"), ResumeError("known")):
        with pytest.raises(type(error)) as raised, FORMAT.reading(tmp_path):
            raise error
        assert raised.value is error
    for error in (MemoryError(), RecursionError("deep"), KeyError("x"), ValueError("bad"), AssertionError()):
        said = "cannot be read as 'a test'.*; write it again"
        with pytest.raises(FileFormatError, match=said) as raised, FORMAT.reading(tmp_path):
            raise error
        assert raised.value.__cause__ is error


def read_if_sound(read, path, **options):
    """What is read, or None where the one class of error says why not."""
    try:
        return read(path, **options)
    except FileFormatError as refused:
        said = str(refused)
    assert said.startswith(f"{path} cannot be read as 'a test': ") and said.endswith("; write it again")
    return None


def test_every_bit_and_every_cut(tmp_path):
    about, arrays = {"a": [1, 2.5, "x", None]}, {"b": np.arange(3.0), "c": np.array([True]), "d": np.zeros((0, 2))}
    for path, read in (
        (FORMAT.write_json(tmp_path / "a.json", about), lambda path: (FORMAT.read_json(path), arrays)),
        (FORMAT.write_arrays(tmp_path / "a.safetensors", about, arrays), FORMAT.read_arrays),
    ):
        whole = path.read_bytes()
        for at in range(len(whole)):
            for bit in (0, 5, 7):
                path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
                if (found := read_if_sound(read, path)) is not None:
                    assert repr(found[0]) == repr(about) and same_arrays(found[1], arrays)
                    assert whole[at : at + 1].isspace(), "only space between values means nothing"
            if whole[at:].strip():
                path.write_bytes(whole[:at])
                with pytest.raises(FileFormatError):
                    read(path)


def test_what_was_changed_is_named(tmp_path):
    path = FORMAT.write_arrays(tmp_path / "a", {}, {"first": np.zeros(2), "second": np.ones(2)})
    whole = path.read_bytes()
    for damaged_bytes, said in (
        (whole[:-1] + b"\0", "second does not match its checksum"),
        (whole.replace(b'"F64"', b'"I64"', 1), "first does not match its checksum"),
        (whole.replace(b'"first": {', b'"third": {', 1), r"holds the arrays \['second', 'third'\], expected \['first'"),
        (whole + b"\0", "1 bytes follow its last array"),
    ):
        path.write_bytes(damaged_bytes)
        with pytest.raises(FileFormatError, match=said):
            FORMAT.read_arrays(path)


any_json = values.map(lambda content: json.dumps(content).encode())


@settings(max_examples=600)
@given(st.binary() | any_json | (st.binary(max_size=40) | any_json).map(lambda text: safetensors_bytes(text, b"data")))
@example(pickle.dumps({"format": "a test"}))
@example(b"PK\x03\x04")
@example(b"\xff" * 8)
def test_any_bytes_and_any_json_are_refused_by_the_one_class(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    for read in (FORMAT.read_json, LARGE.read_json, FORMAT.read_arrays):
        with contextlib.suppress(FileFormatError, OSError):
            read(tmp_path / "a")


sizes = st.sampled_from([0, 1, 2, 3, 8, 2**31 - 1, 2**31, 2**63, -1, 10**400]) | values
entries = (
    st.fixed_dictionaries(
        {},
        optional={
            "dtype": st.sampled_from(["BOOL", "U8", "F64", "F16", "BF16"]) | values,
            "shape": st.lists(sizes, max_size=4) | st.just([1] * 40) | values,
            "data_offsets": st.lists(sizes, min_size=2, max_size=2) | values,
        },
    )
    | values
)


@settings(max_examples=250)
@given(st.dictionaries(st.sampled_from("abc"), entries, max_size=3), documents, values, st.binary(max_size=24))
@example(
    {"a": {"dtype": "F64", "shape": [0, 2**31 - 1, 2**31 - 1, 2**31 - 1], "data_offsets": [0, 0]}}, {}, {"a": 0}, b""
)
@example({"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}, {}, {}, b"\0" * 8)
@example({"a": {"dtype": "U8", "shape": [1] * 40, "data_offsets": [0, 1]}}, {}, {"a": 0}, b"\0")
def test_any_header_with_the_right_checksum_is_read_or_refused(tmp_path, header, about, checksums, data):
    guessed = {name: zlib.crc32(b"F64[1]" + data) for name in header}
    for sums in (checksums, guessed):
        stated = sealed({"format": "a test", "version": 1, **about, "arrays": sums})
        path = tmp_path / "a"
        path.write_bytes(safetensors_bytes({"__metadata__": {"secret_rl": stated}, **header}, data))
        if (found := read_if_sound(FORMAT.read_arrays, path)) is not None:
            assert sum(array.nbytes for array in found[1].values()) == len(data) and found[1].keys() == header.keys()


@contextlib.contextmanager
def little_memory(limit=1 << 20):
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F64", "shape": [10**9], "data_offsets": [0, 8 * 10**9]},
        {"dtype": "F64", "shape": [10**9], "data_offsets": [0, 8]},
        {"dtype": "F64", "shape": [2**31 - 1] * 4, "data_offsets": [0, 8]},
        {"dtype": "U8", "shape": [10**9, 1], "data_offsets": [0, 10**9]},
        {"dtype": "U8", "shape": [10**12], "data_offsets": [0, 10**12]},
        {"dtype": "F64", "shape": [1, 10**8], "data_offsets": [-8 * 10**8, 8]},
        {"dtype": "BOOL", "shape": [0, 10**9], "data_offsets": [0, 10**9]},
    ],
)
def test_sizes_beyond_the_file_take_no_memory(tmp_path, entry):
    path = tmp_path / "a"
    stated = sealed({"format": "a test", "version": 1, "arrays": {"x": 0}})
    path.write_bytes(safetensors_bytes({"__metadata__": {"secret_rl": stated}, "x": entry}, b"\0" * 8))
    with little_memory(), pytest.raises(FileFormatError, match="x of shape .* does not fit its bytes|whole number"):
        FORMAT.read_arrays(path)


@pytest.mark.parametrize(
    ("size", "start", "said"),
    [
        *((10, length.to_bytes(8, "little"), "is not a whole safetensors file") for length in (9, 2**32, 2**64 - 1)),
        (1 << 32, (1 << 31).to_bytes(8, "little"), "its header claims 2,147,483,648 bytes"),
    ],
)
def test_headers_of_any_size_take_no_memory(tmp_path, size, start, said):
    with (tmp_path / "a").open("wb") as file:  # sparse
        file.write(start)
        file.truncate(size)
    with little_memory(), pytest.raises(FileFormatError, match=said):
        FORMAT.read_arrays(tmp_path / "a")
    with little_memory(1 << 25), pytest.raises(FileFormatError):
        FORMAT.read_json(tmp_path / "a")


@pytest.mark.parametrize("mark", ["[],", "{},", "0,", '"",', "[[[["])
def test_many_small_values_take_little_memory(tmp_path, mark):
    """Two bytes of a file become up to 72 bytes of memory."""
    text = "[" + mark * (4_000_000 // len(mark)) + "0]"
    for read, content in (
        (FORMAT.read_json, text.encode()),
        (FORMAT.read_arrays, safetensors_bytes(text.encode())),
    ):
        (tmp_path / "a").write_bytes(content)
        with little_memory(20 << 20), pytest.raises(FileFormatError, match="its JSON holds .* values in .* bytes"):
            read(tmp_path / "a")


BAD_JSON = {
    "deep": "[" * 100_000,
    "deep and whole": "[" * 100_000 + "]" * 100_000,
    "deep objects": '{"a":' * 50_000 + "0" + "}" * 50_000,
    "huge integer": "1" * 5_000,
    "NaN": "NaN",
    "Infinity": "Infinity",
    "-Infinity": "-Infinity",
    "beyond floats": "1e999",
    "lone surrogate": '"\\ud800"',
    "lone surrogate as a name": '{"\\udfff": 1}',
}


@pytest.mark.parametrize("kind", [FORMAT, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("bad", BAD_JSON)
def test_what_json_should_not_hold_is_refused(tmp_path, bad, kind):
    text = BAD_JSON[bad]
    # With the checksum that the document would have if the text were the word HERE.
    document = sealed({"format": "a test", "version": 1, "value": "HERE"}).replace('"HERE"', text)
    header = b'{"__metadata__": {"secret_rl": "{}"}, "a": ' + text.encode() + b"}"
    for read, content in (
        (kind.read_json, document.encode()),
        (kind.read_arrays, safetensors_bytes({"__metadata__": {"secret_rl": document}})),
        (kind.read_arrays, safetensors_bytes(header)),
    ):
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(FileFormatError, match="cannot be read as 'a test'"):
            read(tmp_path / "a")


def test_links_and_encodings_are_no_way_around(tmp_path):
    path = FORMAT.write_json(tmp_path / "a.json", {"a": "é"})
    (tmp_path / "link").symlink_to(path)
    assert FORMAT.read_json(tmp_path / "link") == {"a": "é"}
    text = path.read_text(encoding="utf-8")
    for encoding in ("utf-16", "utf-8-sig", "utf-32"):
        path.write_text(text, encoding=encoding)
        with pytest.raises(FileFormatError):
            FORMAT.read_json(path)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_numbers_that_are_none_are_refused_unless_they_are_allowed(tmp_path, number, dtype):
    arrays = {"good": np.zeros(2, dtype), "bad": np.array([[0, number]], dtype)}
    path = FORMAT.write_arrays(tmp_path / "a", {}, arrays, finite=False)
    assert same_arrays(FORMAT.read_arrays(path, finite=False)[1], arrays)
    with pytest.raises(FileFormatError, match="bad holds NaN or infinite numbers"):
        FORMAT.read_arrays(path)


# What cannot be written

circle: list = []
circle.append(circle)
BAD_VALUES = {
    "NaN": float("nan"),
    "infinity": float("inf"),
    "object": object(),
    "bytes": b"x",
    "set": {1},
    "array": np.zeros(2),
    "number of numpy": np.int64(1),
    "lone surrogate": "\ud800",
    "huge integer": 10**5000,
    "circle": circle,
    "tuple as a name": {(1, 2): 3},
}


@pytest.mark.parametrize("bad", BAD_VALUES)
def test_what_cannot_be_written_leaves_the_old_file(tmp_path, bad):
    document = FORMAT.write_json(tmp_path / "a.json", {"old": 1})
    arrays = FORMAT.write_arrays(tmp_path / "a.safetensors", {"old": 1}, {"x": np.ones(2)})
    before = document.read_bytes(), arrays.read_bytes()
    for content in ({"x": BAD_VALUES[bad]}, {"x": [{"y": BAD_VALUES[bad]}]}):
        with pytest.raises(ValueError, match="cannot write a test: .*; meta and options must be JSON values"):
            FORMAT.write_json(document, content)
        with pytest.raises(ValueError, match="cannot write a test: "):
            FORMAT.write_arrays(arrays, content, {"x": np.zeros(2)})
        with pytest.raises(ValueError):
            FORMAT.write_json(tmp_path / "new.json", content)
    assert (document.read_bytes(), arrays.read_bytes()) == before
    assert sorted(tmp_path.iterdir()) == [document, arrays]


@pytest.mark.parametrize(
    ("bad", "error", "said"),
    [
        (np.array([1.0, np.nan]), ValueError, "bad holds NaN or infinite numbers: .*a.safetensors is not written"),
        (np.array([np.inf], np.float16), ValueError, "bad holds NaN or infinite numbers"),
        (np.array([object()]), TypeError, "bad has dtype object, which .* cannot hold: expected numbers or bools"),
        (np.array([None]), TypeError, "bad has dtype object"),
        (np.array(["text"]), TypeError, "bad has dtype <U4"),
        (np.array([1j]), TypeError, "bad has dtype complex128"),
        (np.array(["2020-01-01"], "M8[D]"), TypeError, "bad has dtype datetime64"),
        (np.zeros(2, [("a", int)]), TypeError, "bad has dtype"),
        ([[1], [1, 2]], ValueError, "inhomogeneous"),
        ({"a": 1}, TypeError, "bad has dtype object"),
    ],
)
def test_arrays_that_cannot_be_written_leave_the_old_file(tmp_path, bad, error, said):
    path = FORMAT.write_arrays(tmp_path / "a.safetensors", {}, {"bad": np.ones(2)})
    before = path.read_bytes()
    with pytest.raises(error, match=said):
        FORMAT.write_arrays(path, {}, {"a good one": np.zeros(3), "bad": bad})
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "arrays"),
    [
        ({"x": dict.fromkeys((2, 10), 0)}, {}),
        ({"x": dict.fromkeys((9.5, 10.5), 0)}, {}),
        ({"x": dict.fromkeys((True, None), 0)}, {}),
        ({"x": [0] * 600_000}, {}),
        ({"x": "x" * (17 << 20)}, {}),
        ({}, {"__metadata__": np.zeros(2)}),
    ],
)
def test_what_is_written_can_be_read_and_what_could_not_be_read_is_not_written(tmp_path, content, arrays):
    for write, read, given_ in (
        (FORMAT.write_json, FORMAT.read_json, (content,)),
        (LARGE.write_json, LARGE.read_json, (content,)),
        (FORMAT.write_arrays, FORMAT.read_arrays, (content, arrays)),
    ):
        try:
            path = write(tmp_path / "a", *given_)
        except (TypeError, ValueError):
            continue
        read(path)


@given(hnp.arrays(st.sampled_from(DTYPES), hnp.array_shapes(max_dims=3, min_side=0)), st.integers(0, 5))
def test_npy_files_grow_by_rows_and_resume(tmp_path, rows, split):
    """Rows in two parts, with an interruption between them: numpy reads the file, and so do we."""
    first, second = rows[:split], rows[split:]
    writer = files.NpyWriter(tmp_path / "x.npy", rows.dtype, rows.shape[1:])
    writer.append(first)
    entry = writer.entry()
    writer.append(rows)  # lost by the interruption
    writer.flush()
    assert same_arrays({"": files.map_npy(tmp_path, entry, growing=True)}, {"": first})
    writer.close()
    writer = files.NpyWriter.resume(tmp_path, entry)
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


@given(documents, documents)
def test_what_differs_is_named(tmp_path, before, now):
    changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    if not changed:
        check_same(tmp_path, "a run", before, now)
        return
    with pytest.raises(ResumeError) as refused:
        check_same(tmp_path, "a run", before, now)
    said = str(refused.value)
    assert said.startswith(f"{tmp_path} holds a run with another {', '.join(changed)} (")
    assert said.endswith(": repeat that call to go on with it, choose another path, or delete it")
    check_same(tmp_path, "a run", now, dict(now))


def test_differences_are_shown_and_short(tmp_path):
    with pytest.raises(ResumeError, match=r"another gone, seed \(gone was 'x', now None; seed was 1, now 2\): repeat"):
        check_same(tmp_path, "a fit", {"seed": 1, "same": [1], "gone": "x"}, {"seed": 2, "same": [1], "new": None})
    with pytest.raises(ResumeError) as refused:
        check_same(tmp_path, "a fit", {"a": "\x1b[31m" + "x" * 10_000}, {"a": 1})
    assert "\x1b" not in str(refused.value) and len(str(refused.value)) < 600 + len(str(tmp_path))


@given(st.recursive(values | st.floats() | st.binary() | st.tuples(st.integers()), st.lists, max_leaves=5))
def test_plain_values_can_be_written(tmp_path, value):
    content = {"x": plain(value)}
    assert FORMAT.read_json(FORMAT.write_json(tmp_path / "a", content)) == content
