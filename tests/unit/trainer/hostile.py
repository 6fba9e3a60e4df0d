"""Files made to harm, of a good `.tflite`: archives that lie or swell, networks that are others, damage at random."""

import io
import json
import random
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shared.model.description import DESCRIPTION_FILE, LABELS_FILE, description_archive, read_description
from tests.unit.trainer.exported import SIZE
from trainer.tflite.flatbuffer import serialize

STATED = {
    **{"name": "tiny", "version": "1.2.3", "licence": "Apache-2.0", "image_size": SIZE, "resize": "letterbox"},
    **{"data_digest": "ab" * 32, "form": "int8"},
}


def without_archive(content: bytes) -> bytes:
    return content[: content.index(b"PK\x03\x04")]


def stated(**changes: Any) -> bytes:
    fields = {name: value for name, value in (STATED | changes).items() if value is not None}
    return json.dumps(fields).encode()


def zipped(members: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    target = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(target, "w", method) as files:
        warnings.simplefilter("ignore")
        for name, content in members.items():
            files.writestr(zipfile.ZipInfo(name), content, compress_type=method)
    return target.getvalue()


def labelled(labels: bytes = b"a\nb\nc\n", description: bytes | None = None, method: int = zipfile.ZIP_STORED) -> bytes:
    """The archive behind a model, with what is said of it here in place of the truth."""
    members = {LABELS_FILE: labels, DESCRIPTION_FILE: stated() if description is None else description}
    return zipped(members, method)


def bomb() -> bytes:
    """3 GB of labels in 3 MB: one piece of a deflated stream, again and again."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = packer.compress(b"a" * 2**20) + packer.flush(zlib.Z_FULL_FLUSH)
    stream = piece * 3000 + packer.flush()
    name, size = LABELS_FILE.encode(), 3000 * 2**20
    sizes = (0x4352C, len(stream), size, len(name))
    labels = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 0, 8, 0, 0, *sizes, 0) + name + stream
    entry = struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, 20, 0, 8, 0, 0, *sizes, 0, 0, 0, 0, 0, 0) + name
    description = zipped({DESCRIPTION_FILE: stated()})
    start = description.index(b"PK\x01\x02")
    files, directory = labels + description[:start], entry + description[start : description.index(b"PK\x05\x06")]
    # The description lies behind the labels.
    at = len(entry) + 42
    directory = directory[:at] + struct.pack("<I", len(labels)) + directory[at + 4 :]
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 2, 2, len(directory), len(files), 0)
    return files + directory + end


def swapped(content: bytes, old: bytes, new: bytes) -> bytes:
    assert content.count(old) > 0
    return content.replace(old, new)


def with_flags(content: bytes, *, flags: int = 0, method: int | None = None, size: int | None = None) -> bytes:
    """The archive with every member's header (local at PK34, central at PK12) said to be otherwise."""
    changed = bytearray(content)
    for mark, start in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        for found in re.finditer(re.escape(mark), content):
            at = found.start() + start
            struct.pack_into("<H", changed, at, flags)
            if method is not None:
                struct.pack_into("<H", changed, at + 2, method)
            if size is not None:
                struct.pack_into("<I", changed, at + 16, size)
    return bytes(changed)


def corrupt(content: bytes) -> bytes:
    """A deflated member whose stream is noise."""
    at = content.index(b"PK\x03\x04") + 30 + len(LABELS_FILE)
    return content[:at] + b"\xff" * 8 + content[at + 8 :]


def many_members(count: int) -> bytes:
    """An archive of so many members: zipfile makes an object of each before anyone asks for one."""
    entry = struct.pack("<4s6H3I5H2I", b"PK\x01\x02", *([0] * 9), 1, *([0] * 4), 0, 0) + b"a"
    directory = entry * count
    return directory + struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, len(directory), 0, 0)


# Name → the archive in place of the true one, and what its refusal names.
ARCHIVES: dict[str, tuple[Callable[[], bytes], str]] = {
    "none": (lambda: b"", "no voc2tflite description"),
    "end cut off": (lambda: labelled()[:-10], "no voc2tflite description"),
    "other files": (lambda: zipped({"notes.txt": b"a"}), "no voc2tflite description"),
    "no labels": (lambda: zipped({DESCRIPTION_FILE: stated()}), "labels.txt"),
    "no description": (lambda: zipped({LABELS_FILE: b"a\n"}), "voc2tflite.json"),
    "44,000 members": (lambda: many_members(44_000), "There is no item named"),
    "encrypted": (lambda: with_flags(labelled(), flags=1), "encrypted"),
    "patched": (lambda: with_flags(labelled(), flags=0x20), "no voc2tflite description"),
    "unknown method": (lambda: with_flags(labelled(), method=97), "method 97"),
    "lzma": (lambda: labelled(method=zipfile.ZIP_LZMA), "method 14"),
    "bzip2": (lambda: labelled(method=zipfile.ZIP_BZIP2), "method 12"),
    "stored, said to be 4 GB": (lambda: with_flags(labelled(), size=0xFFFFFFF0), "4,294,967,280 bytes"),
    "deflated, said to be 10 bytes": (
        lambda: with_flags(labelled(b"a" * 2**25, method=zipfile.ZIP_DEFLATED), method=8, size=10),
        "no voc2tflite description",
    ),
    "corrupt stream": (lambda: corrupt(labelled(b"ab" * 90, method=zipfile.ZIP_DEFLATED)), "no voc2tflite description"),
    "wrong checksum": (lambda: swapped(labelled(b"cat\n"), b"cat\n", b"dog\n"), "CRC"),
    "names in no code": (
        lambda: with_flags(swapped(labelled(), b"labels.txt", b"labels\xff\xff\xff\xff"), flags=0x800),
        "no voc2tflite description",
    ),
    "10 million labels": (lambda: labelled(b"a\n" * 10_000_000), "20,000,000 bytes"),
    "description of 3 MB": (
        lambda: labelled(description=b" " * 3_000_000, method=zipfile.ZIP_DEFLATED),
        "voc2tflite.json",
    ),
    "no labels at all": (lambda: labelled(b""), "labels.txt"),
    "empty label": (lambda: labelled(b"a\n\nc\n"), "line 2"),
    "same label twice": (lambda: labelled(b"a\nb\na\n"), "'a' twice"),
    "labels in Latin-1": (lambda: labelled("Ähre\n".encode("latin-1")), "UTF-8"),
    "no JSON": (lambda: labelled(description=b"{"), "voc2tflite.json"),
    "JSON in no code": (lambda: labelled(description=b'{"name": "\xff"}'), "voc2tflite.json"),
    "deep JSON": (lambda: labelled(description=b"[" * 60_000), "voc2tflite.json"),
    "deep JSON that ends": (lambda: labelled(description=b"[" * 30_000 + b"]" * 30_000), "voc2tflite.json"),
    "number of 60,000 digits": (lambda: labelled(description=b"9" * 60_000), "voc2tflite.json"),
    "list": (lambda: labelled(description=b"[]"), "list"),
    "nothing stated": (lambda: labelled(description=b"{}"), "data_digest, image_size, licence, name, resize, version"),
    "surplus field": (lambda: labelled(description=stated(**{"colour\x1b[2J": 1})), r"colour\x1b[2J"),
    "number for a name": (lambda: labelled(description=stated(name=7)), "name is of type int"),
    "text for a size": (lambda: labelled(description=stated(image_size="64")), "image_size is of type str"),
    "truth for a size": (lambda: labelled(description=stated(image_size=True)), "image_size is of type bool"),
    "fraction for a size": (lambda: labelled(description=stated(image_size=64.0)), "image_size is of type float"),
    "list for a way to resize": (lambda: labelled(description=stated(resize=[])), "resize is of type list"),
    "size 0": (lambda: labelled(description=stated(image_size=0)), "image_size 0"),
    "size below 0": (lambda: labelled(description=stated(image_size=-64)), "image_size -64"),
    "huge size": (lambda: labelled(description=stated(image_size=10**4000)), "image_size 1000"),
    "size between": (lambda: labelled(description=stated(image_size=65)), "image_size 65"),
    "another size than the model's": (lambda: labelled(description=stated(image_size=96)), "[1, 96, 96, 3]"),
    "threshold above 1": (lambda: labelled(description=stated(best_score=1.5)), "best_score 1.5"),
    "threshold that is no number": (lambda: labelled(description=stated(best_score=float("nan"))), "best_score nan"),
    "text for a threshold": (lambda: labelled(description=stated(best_score="0.4")), "best_score is of type str"),
    "unknown way to resize": (lambda: labelled(description=stated(resize="crop\x1b[31m\nerror")), r"crop\x1b[31m\n"),
}


def rewritten(content: bytes, change: Callable[[Any], None]) -> bytes:
    """A `.tflite` with its flatbuffer changed and its description as before."""
    tree = schema.ModelT.InitFromPackedBuf(content, 0)
    change(tree)
    model = serialize(tree)
    return model + description_archive(len(model), read_description(content))


def image_of(tree: Any) -> Any:
    return tree.subgraphs[0].tensors[tree.subgraphs[0].inputs[0]]


def declare_enormous(tree: Any) -> None:
    output = tree.subgraphs[0].operators[3].outputs[0]
    tree.subgraphs[0].tensors[output].shape = np.asarray([1, 2**15, 2**15, 64], np.int32)


def declare_below_zero(tree: Any) -> None:
    """Two that would cancel out in a sum."""
    for operator, sides in ((3, [1, 2**15, 2**15, 64]), (4, [-1, 2**15, 2**15, 64])):
        output = tree.subgraphs[0].operators[operator].outputs[0]
        tree.subgraphs[0].tensors[output].shape = np.asarray(sides, np.int32)


def fill_enormous(tree: Any) -> None:
    """An operator more, whose output is declared small and made 6 GB by its input when LiteRT plans its memory."""

    def tensor(kind: int, shape: list[int], content: Any = None) -> int:
        added = schema.TensorT()
        added.name, added.shape, added.type, added.buffer = b"more", np.asarray(shape, np.int32), kind, 0
        if content is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(content.tobytes(), np.uint8)
            tree.buffers.append(buffer)
            added.buffer = len(tree.buffers) - 1
        tree.subgraphs[0].tensors.append(added)
        return len(tree.subgraphs[0].tensors) - 1

    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.FILL
    code.version = 1
    tree.operatorCodes.append(code)
    sides = tensor(schema.TensorType.INT32, [2], np.asarray([40_000, 40_000], np.int32))
    value = tensor(schema.TensorType.FLOAT32, [], np.asarray(1, np.float32))
    operator = schema.OperatorT()
    operator.opcodeIndex = len(tree.operatorCodes) - 1
    operator.inputs = np.asarray([sides, value], np.int32)
    operator.outputs = np.asarray([tensor(schema.TensorType.FLOAT32, [1, 1])], np.int32)
    operator.builtinOptionsType, operator.builtinOptions = schema.BuiltinOptions.FillOptions, schema.FillOptionsT()
    tree.subgraphs[0].operators.append(operator)


def forget_scale(tree: Any) -> None:
    """LiteRT 2.3 reads the scale of an addition's output without asking whether there is one: it aborts."""
    graph = tree.subgraphs[0]
    codes = [max(code.builtinCode, code.deprecatedBuiltinCode) for code in tree.operatorCodes]
    for operator in graph.operators:
        if codes[operator.opcodeIndex] == schema.BuiltinOperator.ADD:
            graph.tensors[operator.outputs[0]].quantization.scale = None


def rename_output(tree: Any) -> None:
    tree.signatureDefs[0].outputs[0].name = b"corners\x1b[2J"


def rename_input(tree: Any) -> None:
    tree.signatureDefs[0].inputs[0].name = b"photo"


def forget_signature(tree: Any) -> None:
    tree.signatureDefs = []


def sign_in_no_code(tree: Any) -> None:
    tree.signatureDefs[0].signatureKey = b"\xff\xfe"


def widen_image(tree: Any) -> None:
    image_of(tree).shape = np.asarray([1, SIZE, 2 * SIZE, 3], np.int32)


def take_two_images(tree: Any) -> None:
    tree.subgraphs[0].inputs = np.asarray([*tree.subgraphs[0].inputs, tree.subgraphs[0].operators[3].outputs[0]])


def take_signed_bytes(tree: Any) -> None:
    image_of(tree).type = schema.TensorType.INT32


def name_boxes_classes(tree: Any) -> None:
    signed = {entry.name: entry for entry in tree.signatureDefs[0].outputs}
    signed[b"classes"].tensorIndex = signed[b"boxes"].tensorIndex


FLATBUFFERS: dict[str, tuple[Callable[[Any], None], str]] = {
    "enormous tensor": (declare_enormous, "of memory"),
    "tensor with sides below zero": (declare_below_zero, "LiteRT"),
    "tensor that grows when planned": (fill_enormous, "LiteRT"),
    "no scale": (forget_scale, "LiteRT"),
    "other output": (rename_output, r"corners\x1b[2J"),
    "other input": (rename_input, "photo"),
    "no signature": (forget_signature, "signature"),
    "signature in no code": (sign_in_no_code, "LiteRT"),
    "other shape": (widen_image, f"[1, {SIZE}, {2 * SIZE}, 3]"),
    "two pictures": (take_two_images, "2 inputs"),
    "other type": (take_signed_bytes, "int32"),
    "boxes for classes": (name_boxes_classes, "classes is float32 [1, 100, 4]"),
}


# Name → a hostile file, made of a good one.
HOSTILE: dict[str, Callable[[bytes], bytes]] = {
    "bomb": lambda content: without_archive(content) + bomb(),
    "44,000 members": lambda content: without_archive(content) + many_members(44_000),
    "million members": lambda content: without_archive(content) + many_members(1_000_000),
    "surplus field": lambda content: without_archive(content) + labelled(description=stated(colour=1)),
    "empty": lambda _: b"",
    "noise": lambda _: random.Random(1).randbytes(10_000),
    "cut off": lambda content: content[:100_000] + labelled(),
    "enormous": lambda content: rewritten(content, declare_enormous),
    "growing": lambda content: rewritten(content, fill_enormous),
    "crash": lambda content: rewritten(content, forget_scale),
}


def mutated(content: bytes, rng: random.Random) -> bytes:
    """The file with a few bytes of its structure otherwise; weights are left, since any are as good."""
    changed = bytearray(content)
    kind = rng.choice(["bit", "word", "bytes", "zeros", "cut"])
    at = rng.choice([rng.randrange(len(content) // 4), len(content) - 1 - rng.randrange(len(content) // 4)])
    if kind == "bit":
        changed[at] ^= 1 << rng.randrange(8)
    elif kind == "word":
        struct.pack_into("<I", changed, min(at, len(content) - 4), rng.choice([0, 1, 255, 2**31 - 1, 2**31, 2**32 - 1]))
    elif kind == "bytes":
        for _ in range(rng.choice([2, 5, 20])):
            changed[rng.randrange(len(content))] = rng.randrange(256)
    elif kind == "zeros":
        changed[at : at + 16] = bytes(len(changed[at : at + 16]))
    else:
        del changed[at:]
    return bytes(changed)
