"""What pretraining leaves: a backbone with the preprocessing of its images."""

from simco_methods.encoder.card import Card
from simco_methods.encoder.encoder import Encoder
from simco_methods.encoder.loading import load_encoder
from simco_methods.encoder.settings import EncoderSettings

__all__ = ["Card", "Encoder", "EncoderSettings", "load_encoder"]
