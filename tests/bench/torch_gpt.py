"""The GPT that bench scripts train in PyTorch beside models/gpt2 and models/gpt_char. Imported where PyTorch is."""
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        width = x.shape[2]
        shape = (x.shape[0], x.shape[1], self.heads, width // self.heads)
        q, k, v = (t.view(shape).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(width, 2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        return x + self.narrow(functional.gelu(self.wide(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    """The head is the table of words; forward gives the mean loss."""

    def __init__(self, layers, heads, width, words, length):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(heads, width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens, after):
        x = self.words(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x)
        scores = self.norm(x) @ self.words.weight.T
        return functional.cross_entropy(scores.view(-1, scores.shape[2]).float(), after.reshape(-1))
