"""Groups of ranks as dimensions of one grid, and what a loop says of where its tensors lie."""

import pytest

from ttrace.adapters.torch.declared import Declared, NotDeclared
from ttrace.adapters.torch.mesh_layout import Extent, Grid, NoGrid, extent_of
from ttrace.adapters.torch.refusals import Unsupported
from ttrace.adapters.torch.topology import Topology


def test_a_group_is_known_by_how_its_ranks_are_laid_out():
    assert extent_of([3]) == Extent(1, 1)
    assert extent_of([1, 3, 5]) == Extent(3, 2)
    assert extent_of([4, 5]) == Extent(2, 1)
    assert extent_of([0, 1, 3]) is None
    assert extent_of([1, 0]) is None


def test_the_grid_is_the_coarsest_into_which_all_groups_fit():
    grid = Grid.of(4, [("tp", Extent(2, 1))], "dp")
    assert (grid.names, grid.sizes()) == (("dp", "tp"), {"dp": 2, "tp": 2})
    assert grid.coordinate(3) == {"dp": 1, "tp": 1} and grid.coordinate(2) == {"dp": 1, "tp": 0}
    assert Grid.of(6, [("dp", Extent(6, 1))], "rest").names == ("dp",)
    assert Grid.of(1, [("tp", Extent(1, 1))], "dp").names == ()


def test_ranks_that_no_group_tells_apart_may_be_several_dimensions():
    grid = Grid.of(8, [("tp", Extent(2, 2))], "dp")
    assert grid.sizes() == {"dp0": 2, "tp": 2, "dp1": 2}
    assert grid.coordinate(5) == {"dp0": 1, "tp": 0, "dp1": 1}


def test_a_flattened_dimension_is_its_neighbours_and_equal_groups_are_one():
    dims = [("dp", Extent(2, 4)), ("cp", Extent(2, 2)), ("tp", Extent(2, 1))]
    grid = Grid.of(8, [*dims, ("dp_cp", Extent(4, 2)), ("again", Extent(2, 1))], "rest")
    assert grid.names == ("dp", "cp", "tp")
    assert grid.inside(Extent(4, 2)) == ("dp", "cp")
    assert grid.inside(Extent(2, 1)) == ("tp",)
    assert grid.inside(Extent(8, 1)) == ("dp", "cp", "tp")
    assert grid.inside(Extent(1, 1)) == ()
    assert grid.inside(Extent(2, 3)) is None and grid.inside(Extent(3, 1)) is None
    # Of one that another cuts, the part without a name is named after it.
    assert Grid.of(4, [("flat", Extent(4, 1)), ("tp", Extent(2, 1))], "dp").names == ("flat0", "tp")


@pytest.mark.parametrize(
    ("world", "named"),
    [
        (12, [("a", Extent(2, 1)), ("b", Extent(3, 1))]),
        (5, [("a", Extent(2, 1))]),
        (4, [("tp", Extent(2, 1)), ("tp", Extent(2, 2))]),
    ],
)
def test_groups_that_fit_no_grid_are_said(world, named):
    with pytest.raises(NoGrid):
        Grid.of(world, named, "dp")


def test_ranks_of_which_nothing_says_what_they_do_are_counted():
    import torch.distributed as dist
    from torch import nn
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    try:
        group = dist.new_group([0, 1])
        model = nn.Linear(2, 2)
        wrapped = nn.parallel.DistributedDataParallel(model, process_group=group)
        with pytest.raises(Unsupported, match="these account for 2 of 4 ranks"):
            Topology.of(model, [wrapped])
        topology = Topology.of(model, [])
        assert topology.by_hand and topology.batch_parts == topology.reduction_parts == 4
    finally:
        dist.destroy_process_group()


class Mesh:
    mesh_dim_names = ("dp", "cp")

    def get_coordinate(self):
        return [0, 0]


def shard(dim):
    from torch.distributed.tensor import Shard

    return Shard(dim)


def test_what_the_loop_has_said_of_a_module_counts_in_its_order():
    said = {"places": {"cp": shard(0)}, ":places": {"cp": shard(0)}, "*": {"cp": shard(-2)}}
    declared = Declared.of(Mesh(), said)
    assert declared.words("places", "0", 2) == "cp:Shard(0)"
    assert declared.words("", "places", 1) == "cp:Shard(0)"
    assert declared.words("layers.0", "x", 3) == "cp:Shard(1)"
    assert declared.words("layers.0", "scale", 1) == "", "it has no such dimension"
    assert declared.dims() == {"cp"}
    assert Declared.of(None, None) is None


@pytest.mark.parametrize(
    ("mesh", "placements", "sentence"),
    [
        (None, {}, "without the mesh"),
        (3, None, "no DeviceMesh"),
        (Mesh(), [], "placements is of type list"),
        (Mesh(), {"*": shard(0)}, "give"),
        (Mesh(), {"*": {"tp": shard(0)}}, "no dimension 'tp', but dp, cp"),
        (Mesh(), {"*": {"cp": 1}}, "give Shard"),
    ],
)
def test_what_says_nothing_is_refused_in_one_sentence(mesh, placements, sentence):
    with pytest.raises(NotDeclared, match=sentence):
        Declared.of(mesh, placements)
