"""Models to tasks, for a corpus of one model or of many:

- ``corpus`` captures the graphs of a case at its sizes.
- ``windows`` draws runs of operators from them.
- ``sequence_choice`` chooses the sequences that are worth a task.
- ``curate`` draws their instances from all places of the corpus, checks each by ``rules``, and writes the tasks.

``model_tasks`` does this for a user's model, in memory, until there are enough tasks. ``remake`` does it for the
suite, with files between the steps and a process for each job. The data set takes all that is drawn.
"""
