"""Values of actions from a memory of transitions; a copy of the network follows it slowly."""

import copy

import torch
from run import Run
from torch import nn
from torch.nn.functional import smooth_l1_loss

run = Run()
net = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 3))
follower = copy.deepcopy(net).requires_grad_(False)
memory = {
    "state": run.normal(5),
    "action": run.integers(3),
    "reward": run.normal(),
    "next": run.normal(5),
    "ends": run.integers(2),
}
model = run.model(net)
optimizer = torch.optim.RMSprop(model.parameters(), 1e-3)
run.attach(model, optimizer)
for step in run.steps():
    for rows in step.micro_batches(model):
        past = {name: values[rows] for name, values in memory.items()}
        with torch.no_grad():
            later = follower(run.partners(past["next"])).max(dim=1).values
            wanted = past["reward"] + 0.9 * later * (1 - past["ends"])
        value = model(past["state"]).gather(1, run.labels(past["action"])[:, None]).squeeze(1)
        step.backward(smooth_l1_loss(value, wanted, reduction="sum"), len(rows))
    step.update(optimizer)
    with torch.no_grad():
        for slow, fast in zip(follower.parameters(), net.parameters(), strict=True):
            slow.lerp_(fast, 0.05)
run.end()
