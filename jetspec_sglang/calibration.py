def calibrate(worker, seconds):
    pass
