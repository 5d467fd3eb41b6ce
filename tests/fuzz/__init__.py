"""Good files, broken at random: each reader must end in a sentence, and soon."""
