"""Lloyd's algorithm under noise: SuLloyd and FastLloyd, its starts, and warm starts."""
