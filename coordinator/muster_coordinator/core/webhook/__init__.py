"""What a webhook is, apart from sending it: whom it may go to, how it is signed, when it is tried again."""
