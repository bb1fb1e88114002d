"""The worker process: it runs the user's workflows and activities.

Slots, running activities, the replay of workflows, heartbeats and the session with the node. A
user's code shares this process, so it loads the library only, and never the application
(``actors``, ``supervisors``, ``chaos``).
"""
