"""Pictures nearly the same in two splits: found by their hashes, in a time that does not grow with the square."""

import random
import time

from producer.finalize.near_duplicates import HashedPicture, near_duplicates
from shared.jobs.job import Split
from shared.picture.alike import NEAR_BITS


def picture(file: str, split: Split, bits: int) -> HashedPicture:
    return HashedPicture(file=file, split=split, hash=bits)


def flipped(rng: random.Random, value: int, bits: int) -> int:
    for place in rng.sample(range(256), bits):
        value ^= 1 << place
    return value


def test_pictures_up_to_15_bits_apart_are_all_found_and_named_by_their_nearest() -> None:
    rng = random.Random(3)
    train = [rng.getrandbits(256) for _ in range(500)]
    pictures = [picture(f"train/{at}", "train", value) for at, value in enumerate(train)]
    pictures += [picture(f"val/{at}", "val", flipped(rng, value, at % 16)) for at, value in enumerate(train[:250])]
    pictures += [picture(f"test/{at}", "test", rng.getrandbits(256)) for at in range(250)]
    found = list(near_duplicates(pictures))
    assert sorted(finding.file for finding in found) == sorted(f"val/{at}" for at in range(250))
    assert found[0].found == "in val, nearly the same picture as train/0 in train"


def test_most_of_those_at_the_limit_are_found_and_none_beyond_it() -> None:
    rng = random.Random(4)
    train = [rng.getrandbits(256) for _ in range(400)]
    for bits, least, most in ((NEAR_BITS, 0.8, 1.0), (NEAR_BITS + 1, 0.0, 0.0)):
        later = [picture(str(at), "test", flipped(rng, value, bits)) for at, value in enumerate(train)]
        found = list(near_duplicates([*(picture("t", "train", value) for value in train), *later]))
        assert least * 400 <= len(found) <= most * 400


def test_pictures_of_one_split_are_not_compared_and_val_is_held_against_test() -> None:
    same = [picture("a", "train", 5), picture("b", "train", 5)]
    assert not list(near_duplicates(same))
    [finding] = near_duplicates([picture("v", "val", 7), picture("t", "test", 7)])
    assert (finding.file, finding.kind) == ("t", "near_duplicate_across_splits")


def test_a_hundred_thousand_pictures_take_seconds() -> None:
    rng = random.Random(5)
    scene = rng.getrandbits(256)  # half of them are of one scene: all their bits but a few are equal
    splits: tuple[Split, ...] = (*("train",) * 8, "val", "test")
    values = (rng.getrandbits(256) if at % 2 else flipped(rng, scene, 20) for at in range(100_000))
    pictures = [picture(str(at), splits[at % 10], value) for at, value in enumerate(values)]
    start = time.process_time()
    found = sum(1 for _ in near_duplicates(pictures))
    assert time.process_time() - start < 60
    assert found > 5_000
