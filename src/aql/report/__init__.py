"""What a person looks at: curves and films."""
