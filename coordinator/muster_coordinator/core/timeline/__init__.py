"""The calendar as steps in time: how much is booked when, and how long what is booked can be kept."""
