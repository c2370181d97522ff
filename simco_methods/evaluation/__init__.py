"""How good an encoder is, by the protocols of the field."""
