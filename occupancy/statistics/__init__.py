"""The statistics: occupancies, means, coverage and distances, with standard errors clustered by task."""
