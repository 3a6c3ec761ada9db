"""A block of a transformer, and a small language model of such blocks."""

import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention


class Block(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.second_norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, allowed):
        """`allowed`: [rows, to, from], or of all rows [to, from]."""
        parts = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mask = allowed[:, None] if allowed.dim() == 3 else allowed
        mixed = scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(self.second_norm(x))))


class LanguageModel(nn.Module):
    def __init__(self, vocabulary=32, width=16, layers=2, is_causal=True, outputs=None):
        super().__init__()
        self.is_causal = is_causal
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(48, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, outputs or vocabulary)

    def forward(self, tokens, is_data=None):
        """`is_data`: [rows, time]; places count from a row's first token."""
        if is_data is None:
            is_data = torch.ones_like(tokens, dtype=torch.bool)
        places = (is_data.cumsum(dim=1) - 1).clamp(min=0)
        time = tokens.shape[1]
        allowed = is_data[:, None, :].expand(-1, time, -1)
        if self.is_causal:
            allowed = allowed & torch.ones(time, time, dtype=torch.bool).tril()
        # A padded place may see itself: a row of nothing has no softmax.
        allowed = allowed | torch.eye(time, dtype=torch.bool)
        hidden = self.words(tokens) + self.places(places)
        for layer in self.layers:
            hidden = layer(hidden, allowed)
        return self.head(self.norm(hidden))


def next_token_losses(logits, tokens, is_data):
    """Of each place but a row's last, [rows, time - 1]; zero where either is padding."""
    logs = logits[:, :-1].log_softmax(dim=-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
    return -logs * (is_data[:, 1:] & is_data[:, :-1])
