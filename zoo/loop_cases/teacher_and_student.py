"""A student learns what a teacher puts out, which nothing steps: called under no_grad, in
evaluation mode, outside of any wrapper."""

import argparse

import torch
from ranks import data_parallel, end, part, start
from torch import nn

import ttrace

SIZE, WIDTH, CLASSES, ROWS = 12, 32, 8, 16


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm = nn.Linear(SIZE, WIDTH), nn.BatchNorm1d(WIDTH)
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, rows):
        return self.out(torch.relu(self.norm(self.up(rows))))


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm = nn.Linear(SIZE, WIDTH), nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, rows):
        return self.out(nn.functional.gelu(self.norm(self.up(rows))))


parser = argparse.ArgumentParser()
parser.add_argument("--bug", action="store_true", help="the teacher is in training mode")
options = parser.parse_args()
rank, ranks = start()
teacher = Net().requires_grad_(False).train(options.bug)
student = data_parallel(Student())
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
ttrace.attach({"student": student, "teacher": teacher}, optimizer)
for step in range(4):
    drawn = torch.Generator().manual_seed(step)
    rows = part(torch.randn(ROWS, SIZE, generator=drawn), rank, ranks)
    with torch.no_grad():
        target = teacher(rows).softmax(-1)
    nn.functional.cross_entropy(student(rows), target).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
