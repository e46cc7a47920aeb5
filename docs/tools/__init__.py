"""What writes the generated pages and pictures, and what the site is built with."""
