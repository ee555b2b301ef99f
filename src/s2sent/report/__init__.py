"""Results for people: tables, figures, and an html page that needs nothing else."""
