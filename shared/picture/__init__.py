"""What the bytes of a picture file say before anybody resizes it: format, size, orientation, damage, a missing end."""
