"""Good files, broken at random: whoever reads them must end in a sentence, and soon."""
