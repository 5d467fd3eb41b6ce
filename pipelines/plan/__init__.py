"""Before and after spending: a first job, what a job will cost, whether a run is whole, what killed runs left."""
