"""The metadata plane: the only room that speaks SQL."""
