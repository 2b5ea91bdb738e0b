"""Where rows and schema changes end up; one folder a destination, blind to each other."""
