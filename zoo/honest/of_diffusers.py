"""A small U-Net and a schedule of noise of diffusers."""

import torch
from diffusers import DDPMScheduler, UNet2DModel
from run import Run

run = Run()
net = UNet2DModel(
    sample_size=8,
    in_channels=1,
    out_channels=1,
    layers_per_block=1,
    norm_num_groups=2,
    block_out_channels=(8, 8),
    down_block_types=("DownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "UpBlock2D"),
)
schedule = DDPMScheduler(num_train_timesteps=100)
images = run.normal(1, 8, 8)
model = run.model(net)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
run.attach(model, optimizer)
batches = run.loader(images)
for step in run.steps():
    for rows in step.micro_batches(model):
        drawn = step.noise(rows, 65)
        noise, time = drawn[:, :64].reshape(-1, 1, 8, 8), (99 * drawn[:, 64].sigmoid()).long()
        noisy = schedule.add_noise(next(batches), noise, time).to(noise.dtype)
        losses = (model(noisy, time).sample - noise).pow(2).mean(dim=(1, 2, 3))
        step.backward(losses.sum(), len(rows))
    step.update(optimizer)
run.end()
