"""One patch in one sandbox: what is run, under which guard, and the verdict on the evidence."""
