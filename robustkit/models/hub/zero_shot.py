"""Zero-shot classification: an image belongs to the class whose description is nearest to it.

Radford et al. 2021, arXiv:2103.00020: logits are cosines between the features of the image and those of each class,
times a learnt scale. The features of a class are the mean over the descriptions that the templates make of its name.
Here the descriptions are encoded once, and the classifier that remains is a differentiable function of the image.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_AT_ONCE = 64  # descriptions in one forward pass


class ZeroShotClassifier(nn.Module):
    """The image tower of a CLIP model with fixed features of classes.

    Args:
        vision_model: returns an object with `.pooler_output`.
        visual_projection: of that output, into the space of the features of classes.
        class_features: `[K, D]` of length one.
        scale: of the cosines.
    """

    class_features: Tensor
    scale: Tensor

    def __init__(
        self, vision_model: nn.Module, visual_projection: nn.Module, class_features: Tensor, scale: Tensor
    ) -> None:
        super().__init__()
        self.vision_model, self.visual_projection = vision_model, visual_projection
        # Constants of the classes, not weights: other classes have others.
        self.register_buffer("class_features", class_features, persistent=False)
        self.register_buffer("scale", scale, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Logits `[B, K]` of preprocessed images."""
        features: Tensor = self.visual_projection(self.vision_model(pixel_values=x).pooler_output)
        # As transformers divides; `F.normalize` would guard against zero, which a gradient does not survive anyway.
        logits: Tensor = self.scale * (features / features.norm(dim=1, keepdim=True)) @ self.class_features.T
        return logits


@torch.no_grad()
def class_features(clip: Any, tokenizer: Any, templates: Sequence[str], classes: Sequence[str]) -> Tensor:
    """Features `[K, D]` of classes, of length one, fp32.

    Computed in float64 and rounded: fp32 alone differs in its last bits from one machine to another, and so would the
    hash of the model. The text tower of `clip` is in float64 afterwards.
    """
    text, projection = clip.text_model.double(), clip.text_projection.double()
    prompts = [template.replace("{}", name) for name in classes for template in templates]
    encoded = []
    for start in range(0, len(prompts), _AT_ONCE):
        tokens = tokenizer(prompts[start : start + _AT_ONCE], padding=True, truncation=True, return_tensors="pt")
        features = projection(text(input_ids=tokens.input_ids, attention_mask=tokens.attention_mask).pooler_output)
        encoded.append(F.normalize(features, dim=1))
    of_classes = torch.cat(encoded).reshape(len(classes), len(templates), -1).mean(1)
    return F.normalize(of_classes, dim=1).float()
