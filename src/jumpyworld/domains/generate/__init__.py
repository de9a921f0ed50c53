"""Making datasets where none can be downloaded: procedures, controllers and the ant's runner."""
