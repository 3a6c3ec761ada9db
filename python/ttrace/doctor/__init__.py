"""What only Python can say to `ttrace doctor`: what torch and the packages beside it are."""
