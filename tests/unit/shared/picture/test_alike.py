"""Pictures that are nearly the same are put into one group, and groups stay small."""

import random

from shared.picture.alike import NEAR_BITS, groups_alike


def hashes(count: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.getrandbits(256) for _ in range(count)]


def test_equal_and_nearly_equal_pictures_are_one_group_and_others_are_alone() -> None:
    one, two, three = hashes(3)
    near = one ^ ((1 << NEAR_BITS) - 1)
    far = one ^ ((1 << 90) - 1)
    assert groups_alike([one, two, near, None, three, one, far, None], most=9) == [0, 1, 0, 3, 4, 0, 6, 7]


def test_a_film_in_which_every_frame_is_like_the_next_becomes_several_groups() -> None:
    frames, (last,) = [], hashes(1)
    for place in range(64):
        frames.append(last)
        last ^= 1 << 3 * place
    groups = groups_alike(frames, most=8)
    sizes = [groups.count(group) for group in set(groups)]
    assert max(sizes) == 8
    assert len(sizes) < 32
