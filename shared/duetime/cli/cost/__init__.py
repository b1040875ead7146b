"""``duetime cost``: what the AWS stack costs a month, from what its code was counted to ask for."""
